import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import t from "tap";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { freshToken, serveIn } from "../doubles/daemon-under-test.ts";

/** It does not look like a key, so only its place in the file can hide it. */
const KEY = `Zq81mmPx${randomBytes(12).toString("hex")}`;
const CONFIG = `gateway: http://127.0.0.1:9/v1
tools:
  codex:   # mine
    key: ${KEY}
    limits: { requests: 60/minute }
  zed: { key: env:ZED_KEY, expires: 2099-01-01 }
`;

t.test("settings are changed in place, the difference is shown, and no secret is in it", async (t) => {
  const home = await newHome(t);
  const changes: [string[], [string, string]][] = [
    [
      ["codex", "limits.spend=5/day,60/month"],
      ["{ requests: 60/minute }", "{ requests: 60/minute, spend: [$5/day, $60/month] }"],
    ],
    [
      ["codex", "limits.spend=$5/day"],
      ["{ requests: 60/minute }", "{ requests: 60/minute, spend: $5/day }"],
    ],
    [
      ["codex", "limits.requests=", "limits.concurrent=4"],
      ["{ requests: 60/minute }", "{ concurrent: 4 }"],
    ],
    [
      ["codex", "quota=20"],
      ["60/minute }\n", "60/minute }\n    quota: $20\n"],
    ],
    [
      ["zed", "expires="],
      [", expires: 2099-01-01", ""],
    ],
    [
      ["zed", "enabled=false"],
      ["2099-01-01 }", "2099-01-01, enabled: false }"],
    ],
  ];
  for (const [args, [before, after]] of changes) {
    const file = await saveConfig(home, CONFIG);
    const { code, stdout, stderr } = await command(t, home, ["tools", "set", ...args]);
    t.strictSame({ code, stderr }, { code: 0, stderr: "" }, args.join(" "));
    t.equal(readFileSync(file, "utf8"), CONFIG.replace(before, after));
    t.match(stdout, /^--- .*config\.yaml\n\+\+\+ .*config\.yaml\n@@ /);
    t.notOk(stdout.includes(KEY));
    const again = await command(t, home, ["tools", "set", ...args]);
    const isRemoval = args.some((arg) => arg.endsWith("="));
    const repeated = isRemoval ? /there is no tools\./ : /has these settings already/;
    t.match(`${again.stdout}${again.stderr}`, repeated, args.join(" "));
    t.equal(readFileSync(file, "utf8"), CONFIG.replace(before, after), "and changes nothing");
  }
});

t.test("an invalid setting changes nothing, and a secret is not accepted as an argument", async (t) => {
  const home = await newHome(t);
  const refusals: [string[], number, RegExp][] = [
    [["codex", "limits.spend=/day"], 1, /tools\.codex\.limits\.spend: .*\nnothing was changed/],
    [["codex", "limts.spend=5/day"], 1, /tools\.codex\.limts: .*did you mean limits/],
    [["codex", "group=coding"], 1, /has no group "coding"/],
    [["codex", "model="], 1, /there is no tools\.codex\.model/],
    [["nobody", "quota=5"], 1, /there is no tool nobody in config\.yaml; its tools are codex, zed/],
    [["codex", "quota"], 2, /name=value/],
    [["codex", `key=${KEY}`], 2, /keybearer tools rotate codex/],
    [["codex", "token=kb_abc"], 2, /keybearer tools token codex/],
    [["codex"], 2, /missing required argument/],
  ];
  for (const [args, code, words] of refusals) {
    const file = await saveConfig(home, CONFIG);
    const ended = await command(t, home, ["tools", "set", ...args]);
    t.match(ended, { code, stdout: "", stderr: words }, args.join(" "));
    t.notOk(ended.stderr.includes(KEY));
    t.equal(readFileSync(file, "utf8"), CONFIG);
  }
});

t.test("a running daemon applies the setting before the command ends", async (t) => {
  const home = await newHome(t);
  const tool = `{ key: ${KEY}, token: ${freshToken().hash} }`;
  await saveConfig(home, `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: ${tool} }\n`);
  const { daemon } = await serveIn(t, home);
  t.equal((await command(t, home, ["tools", "set", "codex", "limits.concurrent=3"])).code, 0);
  t.equal(daemon.snapshot().config.tools.codex?.limits.concurrent, 3);
});
