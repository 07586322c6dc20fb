import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { createProgram } from "../../src/cli/program.ts";
import { compareConfigs } from "../../src/config/compare.ts";
import { REACH } from "../../src/control/reach.ts";
import { ROUTES } from "../../src/control/routes.ts";
import { ACTIONS } from "../../src/dashboard/actions/actions.ts";
import { isRunnable, tableName, visibleCommands } from "../doubles/cli-reference.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { ROOT } from "../doubles/paths.ts";

t.test("the table has every command, route and action, and nothing else", (t) => {
  const commands = visibleCommands(createProgram()).filter(isRunnable).map(tableName);
  const dashboard = readFileSync(join(ROOT, "src/dashboard/routes.ts"), "utf8");
  const pages = [...dashboard.matchAll(/"((?:GET|POST) \/api\/[^"]+)"/g)].map(([, route = ""]) => route);
  t.ok(pages.length > 5, "the dashboard's routes are found");
  const actions = Object.keys(ACTIONS).map((kind) => `action ${kind}`);
  const all = [...commands, "help", ...Object.keys(ROUTES), ...pages, ...actions];
  t.strictSame([...new Set(all)].sort(), Object.keys(REACH).sort());
  t.end();
});

const BEFORE = `
shared: { store: rediss://store.example.com, secret: 0000000000000000-1234 }
gateways:
  main: { base_url: https://gateway.example.com/v1, groups: { vip: {}, plain: {} } }
tools:
  codex:
    key: keychain:keybearer/codex
    token: [{ name: a, hash: "sha256:${"a".repeat(64)}" }, { name: b, hash: "sha256:${"b".repeat(64)}" }]
    group: plain
    limits: { spend: [$5/day, $60/month], requests: 10/minute, concurrent: 4, session: { spend: $2 } }
    quota: $100
    expires: 2031-01-01
  other: { key: keychain:keybearer/other }
  literal: { key: sk-0000000000000000-1234, process: /usr/bin/literal, token: "sha256:${"e".repeat(64)}" }
`;

const CHANGES = {
  keeps: [["# a comment", (text: string) => `${text}# mine\n`]],
  narrows: [
    ["a lower limit", (text: string) => text.replace("$5/day", "$4/day")],
    ["one more limit", (text: string) => text.replace("$60/month]", "$60/month, $1/hour]")],
    [
      "a limit where there was none",
      (text: string) => text.replace("concurrent: 4", "concurrent: 4, tokens: 10/second"),
    ],
    ["fewer at once", (text: string) => text.replace("concurrent: 4", "concurrent: 1")],
    ["a lower session limit", (text: string) => text.replace("spend: $2 }", "spend: $1, requests: 5 }")],
    ["a lower quota", (text: string) => text.replace("$100", "$99")],
    ["an earlier end", (text: string) => text.replace("2031-01-01", "2030-01-01")],
    ["disabled", (text: string) => text.replace("quota", "enabled: false\n    quota")],
    ["the last token", (text: string) => text.replace(/^ {4}token:.*\n/m, "")],
    ["a token less", (text: string) => text.replace(/, \{ name: b.*?\}/, "")],
    ["a tool less", (text: string) => text.replace(/^ {2}other.*\n/m, "")],
  ],
  widens: [
    ["a higher limit", (text: string) => text.replace("$5/day", "$6/day")],
    ["a limit less", (text: string) => text.replace("[$5/day, $60/month]", "$5/day")],
    ["another period", (text: string) => text.replace("$5/day", "$5/hour")],
    ["lower here, higher there", (text: string) => text.replace("$5/day", "$4/day").replace("$100", "$101")],
    ["no limit at once", (text: string) => text.replace(", concurrent: 4", "")],
    ["no session limit", (text: string) => text.replace(", session: { spend: $2 }", "")],
    ["no quota", (text: string) => text.replace("    quota: $100\n", "")],
    ["no end", (text: string) => text.replace("    expires: 2031-01-01\n", "")],
    ["another group", (text: string) => text.replace("group: plain", "group: vip")],
    ["another key", (text: string) => text.replace("keybearer/codex", "keybearer/else")],
    // Both keys end in the four characters that are shown of a key.
    ["another key in the file", (text: string) => text.replace("sk-0000", "sk-1111")],
    ["another secret in the file", (text: string) => text.replace("secret: 0000", "secret: 1111")],
    // With a token and a program both must match; with a program alone it is enough.
    ["the last token of a program", (text: string) => text.replace(/, token: "sha256:e+"/, "")],
    ["another token", (text: string) => text.replace("a".repeat(64), "c".repeat(64))],
    [
      "a token more",
      (text: string) => text.replace(/^ {2}other: \{/m, `  other: { token: "sha256:${"d".repeat(64)}",`),
    ],
    ["a tool more", (text: string) => `${text}  third: {}\n`],
    ["another gateway", (text: string) => text.replace("gateway.example.com", "other.example.com")],
    [
      "one so small that requests hold little of the others",
      (text: string) => text.replace("$60/month]", "$60/month, $0.01/second]"),
    ],
    ["no leak alarm", (text: string) => text.replace("quota", "keys_elsewhere: true\n    quota")],
  ],
} as const;

t.test("a change of config.yaml narrows only if everything in it does", (t) => {
  const before = configOf(BEFORE);
  for (const [change, cases] of Object.entries(CHANGES))
    for (const [name, edit] of cases) {
      const text = edit(BEFORE);
      t.not(text, BEFORE, name);
      t.equal(compareConfigs(before, configOf(text)), change, name);
    }
  t.end();
});
