import t from "tap";
import { newConfig } from "../../src/cli/first-config.ts";
import { parseConfig } from "../../src/config/parse.ts";
import { Report, redactConfig } from "../../src/config/problems.ts";
import { redactValidConfig } from "../../src/config/redact.ts";

const FIRST = newConfig({
  baseUrl: "https://gateway.example.com/v1",
  tool: "codex",
  key: "keychain:keybearer/codex",
  token: { name: "codex", hash: `sha256:${"a".repeat(64)}`, created: "2026-11-16" },
  budget: { limits: null, prices: [] },
});

/** A problem with this message at this offset of a config.yaml. */
function problemIn(text: string, at: number, message: string) {
  const report = new Report(text);
  report.error(at, "", message);
  return report.problems()[0];
}

t.test("the examples in a new config.yaml are no secrets, so hints may name the same", (t) => {
  for (const hint of [
    "such as 2027-03-31",
    "such as 2026-11-16",
    "such as 60/minute or $60/month",
    "such as claude-sonnet-4-5",
  ])
    t.equal(problemIn(FIRST, 0, hint)?.message, hint);
  t.end();
});

t.test("what follows the host of an address below notify is hidden, also below a misspelled setting", (t) => {
  for (const name of ["webhooks", "webhook", "web-hooks"])
    for (const notify of [
      `notify:\n  ${name}:\n    ops:\n      url: https://hooks.slack.com/services/T/canary\n`,
      `notify: { ${name}: { ops: { url: "https://hooks.slack.com/services/T/canary" } } }\n`,
    ]) {
      const text = `${FIRST}${notify}`;
      const problem = problemIn(text, text.indexOf("https://hooks"), "no setting services/T/canary");
      t.match(problem?.excerpt, "https://hooks.slack.com/", notify);
      t.notMatch(`${problem?.excerpt}${problem?.message}${redactConfig(text)}`, /canary/, notify);
    }
  t.end();
});

t.test("a key stays hidden after a # and below settings that are commented out", (t) => {
  const key = "Zq81mmPx40TtLw93";
  for (const lines of [
    `    #key: ${key}\n`,
    `    #expires: 2027-03-31\n    #key: ${key}\n`,
    `    #expires: 2027-03-31\n      ${key}\n`,
    `      #note: ${key}\n`,
    `    # ${key}\n`,
  ]) {
    const text = `${FIRST}    token: sha256:${"b".repeat(64)}\n${lines}`;
    const lineStart = text.lastIndexOf("\n", text.indexOf(key)) + 1;
    const problem = problemIn(text, lineStart, `about ${key}`);
    t.equal(problem?.message, "about [hidden]", lines);
    t.notMatch(problem?.excerpt, key, lines);
  }
  t.end();
});

t.test("of a valid file only the secrets are hidden, also where a line has more settings", (t) => {
  const hash = `sha256:${"c".repeat(64)}`;
  const key = "Zq81mmPx40TtLw93";
  for (const [line, shown] of [
    [`{ key: ${key}, token: "${hash}", quota: $5 }`, `{ key: [hidden], token: "${hash}", quota: $5 }`],
    [`{ "key": "${key}", enabled: false }`, `{ "key": [hidden], enabled: false }`],
    [`{ enabled: false, key: ${key} } # key: ${key}`, `{ enabled: false, key: [hidden] } # key: [hidden]`],
    [`{ key: file:~/keys/codex, quota: $5 }`, `{ key: file:~/keys/codex, quota: $5 }`],
    [
      `{ key: { command: [/bin/pass, show] }, quota: $5 }`,
      `{ key: { command: [/bin/pass, [hidden]] }, quota: $5 }`,
    ],
    [
      `{ quota: $5 } # key: ${key}\n    # key: ${key}\n    #  ${key}\n    # note: no`,
      `{ quota: $5 } # key: [hidden]\n    # key: [hidden]\n    #  [hidden]\n    # note: no`,
    ],
  ])
    t.equal(redactValidConfig(`tools:\n  codex: ${line}\n`), `tools:\n  codex: ${shown}\n`);
  for (const value of [
    key,
    `|\n      ${key}`,
    `>-\n      ${key}\n      ${key}`,
    `"${key}\\\n      ${key}"`,
  ]) {
    const text = `tools:\n  codex:\n    key: ${value}\n    quota: $5\n`;
    t.notMatch(redactValidConfig(text), key, value);
    t.match(redactValidConfig(text), "\n    quota: $5\n", value);
  }
  t.end();
});

t.test("of a valid file no secret is shown, however it is written", (t) => {
  const secret = "canary7of9";
  const notify = (name: string, webhooks: string, url: string) =>
    `    quota: $5\n${name}:\n  ${webhooks}:\n    ops: { url: ${url} }`;
  const cases = [
    `    key: { command: [/usr/bin/curl, -H, "X-Token: ${secret}"] }`,
    `    key:\n      command:\n        - /usr/bin/curl\n        - ${secret}`,
    `    "ke\\x79": ${secret}-0123456789`,
    `    ? key # of codex\n    : ${secret}-0123456789`,
    `    key: ENV:${secret}`,
    `    key: "FILE:${secret}"`,
    `    key: "sha256:,${secret}"`,
    `    key: 0123456789-other # before: ${secret}`,
    `    quota: $5\n    # key: file:/x\n    #  or ${secret}`,
    notify("notify", "webhooks", `"https:\\/\\/hooks.example.com/${secret}"`),
    notify("notify", "webhooks", `"https://hooks.example.com/a\\\n      ${secret}"`),
    notify('"notif\\x79"', '"webhook\\x73"', `https://hooks.example.com/${secret}`),
    `    quota: $5\nnotify: { command: [/usr/bin/notify, ${secret}] }`,
    `    quota: $5\nshared: { store: { url: rediss://store.example.com, username: me, password: "a } ${secret}" } }`,
  ];
  for (const lines of cases) {
    const text = `gateway: https://gateway.example.com/v1\ntools:\n  codex:\n${lines}\n`;
    t.same(parseConfig(text, "/home/me").problems, [], lines);
    t.notMatch(redactValidConfig(text), secret, lines);
  }
  t.end();
});

t.test(
  "what looks like a secret inside another value of a valid file is shown: a person decides by it",
  (t) => {
    const text = "tools:\n  codex: { model: 'a key: b', limits: { spend: $500/day } }\n";
    t.equal(redactValidConfig(text), text);
    t.end();
  },
);
