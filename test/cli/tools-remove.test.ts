import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { command, flat, newHome, saveConfig } from "../doubles/command.ts";
import { atScreen } from "../doubles/screen.ts";

const KEY = `sk-canary-${randomBytes(12).toString("hex")}`;
const TOOLS = `gateway: http://127.0.0.1:9/v1
tools:
  # the editor
  zed:   # mine
    key: env:ZED_KEY
  codex:
    key: ${KEY}
    # model: x
  claude-code: {}
  twin: { key: { command: [/usr/bin/op, read, one] } }
  other: { key: { command: [/usr/bin/op, read, two] } }
  same: { key: { command: [/usr/bin/op, read, two] } }
`;

t.test(
  "remove deletes only the lines of the tool from the file, and says where its key still is",
  async (t) => {
    const removals: [string, string, RegExp][] = [
      [
        "zed",
        TOOLS.replace(/ {2}zed:.*\n.*\n/, ""),
        /comments above it are still there\nits key stays in env:ZED_KEY: delete it there and in the gateway's console/,
      ],
      [
        "codex",
        TOOLS.replace(/ {2}codex:\n.*\n.*\n/, ""),
        new RegExp(
          `its key …${KEY.slice(-4)} was in config.yaml and is gone: delete it in the gateway's console, too`,
        ),
      ],
      [
        "claude-code",
        TOOLS.replace("  claude-code: {}\n", ""),
        /its key stays in keychain:keybearer\/claude-code: delete it there/,
      ],
      [
        "twin",
        TOOLS.replace(/ {2}twin:.*\n/, ""),
        /its key stays in command \/usr\/bin\/op: delete it there/,
      ],
      [
        "other",
        TOOLS.replace(/ {2}other:.*\n/, ""),
        /its key, command \/usr\/bin\/op, is also the key of same$/m,
      ],
    ];
    const home = await newHome(t);
    for (const [tool, after, words] of removals) {
      const file = await saveConfig(home, TOOLS);
      const { code, stdout, stderr } = await command(t, home, [
        "tools",
        "remove",
        tool,
        "--yes",
        "--now",
        "--keep-key",
      ]);
      t.strictSame({ code, stderr }, { code: 0, stderr: "" }, tool);
      t.equal(readFileSync(file, "utf8"), after);
      t.match(
        stdout,
        `${tool} is removed from ${file}: its tokens have ended, its records stay in the usage log\n`,
      );
      t.match(stdout, words);
      t.match(stdout, /\nkeybearer is not running, so no request is in flight\n$/);
      t.notOk(stdout.includes(KEY));
      if (tool !== "zed") t.notMatch(stdout, /comments/);
    }
  },
);

t.test("without a terminal and without --yes, remove exits 2 and removes nothing", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, TOOLS);
  const { code, stdout, stderr } = await command(t, home, ["tools", "remove", "zed"], { input: "yes\n" });
  t.strictSame({ code, stdout }, { code: 2, stdout: "" });
  t.match(stderr, /there is no terminal to ask at\. if you are sure: keybearer tools remove zed --yes/);
  t.equal(readFileSync(file, "utf8"), TOOLS);
});

t.test("an unknown tool and a file that cannot be edited change nothing", async (t) => {
  const home = await newHome(t);
  const kept: [string, RegExp][] = [
    [TOOLS.replaceAll("zed", "yed"), /there is no tool zed .* yed, codex/],
    [`tools: { a: {}, # a\n  zed: { key: ${KEY} } }\n`, /delete tools\.zed by hand/],
  ];
  for (const [text, words] of kept) {
    const file = await saveConfig(home, text);
    const { code, stdout, stderr } = await command(t, home, ["tools", "remove", "zed", "--yes"]);
    t.strictSame({ code, stdout }, { code: 1, stdout: "" });
    t.match(stderr, words);
    t.notOk(stderr.includes(KEY));
    t.equal(readFileSync(file, "utf8"), text);
  }
});

t.test("at a terminal remove asks, and only a yes removes", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, TOOLS);
  for (const answer of ["no\r", "\r", "\u0004"]) {
    const person = atScreen(t, home, ["tools", "remove", "zed"]);
    await person.says(/remove\s+zed\s+from\s[\s\S]*config\.yaml\?\s+\[y\/N\]/);
    person.type(answer);
    const { code, stdout } = await person.ended;
    t.equal(code, 1, JSON.stringify(answer));
    t.match(stdout, /not removed; nothing changed/);
  }
  t.equal(readFileSync(file, "utf8"), TOOLS);
  const person = atScreen(t, home, ["tools", "remove", "zed"]);
  await person.says(/\[y\/N\]/);
  person.type("y\r");
  t.equal((await person.ended).code, 0);
  t.notMatch(readFileSync(file, "utf8"), /zed/);
});

t.test("an edit by hand while remove asks is not lost", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, TOOLS);
  const person = atScreen(t, home, ["tools", "remove", "zed"]);
  await person.says(/\[y\/N\]/);
  writeFileSync(file, `${TOOLS}# by hand\n`);
  person.type("yes\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 1);
  t.match(
    flat(stdout),
    "was changed by something else meanwhile and was left as it is → run the command again",
  );
  t.equal(readFileSync(file, "utf8"), `${TOOLS}# by hand\n`);
});

t.test("the key that keybearer stored is deleted after a question, unless --keep-key is given", async (t) => {
  const home = await newHome(t);
  const stored = join(home, "keys", "codex");
  const write = async () => {
    await saveConfig(
      home,
      `gateway: http://127.0.0.1:9/v1\ntools: { zed: {}, codex: { key: file:${stored} } }\n`,
    );
    mkdirSync(join(home, "keys"), { recursive: true, mode: 0o700 });
    writeFileSync(stored, `${KEY}\n`, { mode: 0o600 });
  };
  await write();
  const kept = await command(t, home, ["tools", "remove", "codex", "--yes", "--keep-key"]);
  t.match(kept, { code: 0, stdout: /its key stays in file:.*: delete it there/ });
  t.ok(existsSync(stored));
  await write();
  const gone = await command(t, home, ["tools", "remove", "codex", "--yes"]);
  t.match(gone, {
    code: 0,
    stdout: /its key is deleted from file:.*: delete it in the gateway's console, too/,
  });
  t.notOk(existsSync(stored));
  for (const [answer, words, isKept] of [
    ["\r", /its key stays in/, true],
    ["y\r", /its key is deleted from/, false],
  ] as const) {
    await write();
    const person = atScreen(t, home, ["tools", "remove", "codex"]);
    await person.says(/remove\s+codex\s+from\s[\s\S]*\[y\/N\]/);
    person.type("y\r");
    await person.says(/delete\s+its\s+key\s+from\s[\s\S]*,\s+too\?\s+\[y\/N\]/);
    person.type(answer);
    const { code, stdout } = await person.ended;
    t.equal(code, 0);
    t.match(stdout, words);
    t.equal(existsSync(stored), isKept);
  }
});

t.test("a key that another tool uses, too, is never deleted", async (t) => {
  const home = await newHome(t);
  const stored = join(home, "keys", "shared");
  await saveConfig(
    home,
    `gateway: http://127.0.0.1:9/v1\ntools: { zed: { key: file:${stored} }, codex: { key: file:${stored} } }\n`,
  );
  mkdirSync(join(home, "keys"), { recursive: true, mode: 0o700 });
  writeFileSync(stored, `${KEY}\n`, { mode: 0o600 });
  const { stdout } = await command(t, home, ["tools", "remove", "codex", "--yes"]);
  t.match(stdout, /is also the key of zed/);
  t.ok(existsSync(stored));
});
