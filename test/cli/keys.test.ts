import t from "tap";
import { keysInWords } from "../../src/cli/keys.ts";
import { consoleLines } from "../../src/cli/tools/console-line.ts";
import { listInWords } from "../../src/cli/tools/list.ts";
import type { ToolStatus } from "../../src/control/tool-status.ts";
import type { KeyReport, KeysAnswer, ToolConsoleFacts } from "../../src/mirror/report/shape.ts";
import { command } from "../doubles/command.ts";
import { startMirrorControl } from "../doubles/mirror-control.ts";

process.env.TZ = "UTC";

const NOW = Date.UTC(2026, 10, 15, 12);
const WIDE = { width: 160, utf8: true };

function key(more: Partial<KeyReport>): KeyReport {
  return {
    gateway: "main",
    ref: "id:12",
    name: "codex",
    key: "…a1b2",
    tools: ["codex"],
    group: "coding",
    multiplier: 1.5,
    state: "active",
    quota: 50_000_000,
    quota_used: 12_400_000,
    windows: [{ window: "5h", most: 5_000_000, used: 1_200_000, resets_at: null }],
    expires_at: Date.UTC(2027, 2, 31, 12),
    last_used_at: NOW - 180_000,
    ...more,
  };
}

const BARE = { group: null, multiplier: null, quota: null, quota_used: null, windows: [], expires_at: null };

t.test("the console's keys stand beside the tools that hold them", async (t) => {
  const keys = [
    key({}),
    key({ ...BARE, name: "old laptop", key: null, tools: [], state: "disabled", last_used_at: null }),
  ];
  t.equal(
    keysInWords({ keys, problems: [] }, NOW, WIDE),
    `name        key    group        state          quota  windows      expires     last use   tool
codex       …a1b2  coding ×1.5  active    $12.40/$50  5h $1.20/$5  2027-03-31  3 min ago  codex
old laptop  -      -            disabled   unlimited  -            -           -          not held here
`,
  );
});

t.test("names and who holds them stay where there is little room", async (t) => {
  const shown = keysInWords({ keys: [key({ tools: [] })], problems: [] }, NOW, { width: 40, utf8: true });
  t.match(shown, /^name .*tool\ncodex .*not held here\n$/);
  t.notMatch(shown, /windows/);
});

t.test("what no key has is no column, and several gateways are told apart", async (t) => {
  const keys = [key({ ...BARE }), key({ ...BARE, gateway: "b", name: "\u001b[2J" })];
  const shown = keysInWords({ keys, problems: [] }, NOW, WIDE);
  t.match(shown, /^gateway +name +key +state +quota +last use +tool\nmain .*\nb +\?\[2J /);
});

t.test("keys that cannot be listed are said so, and no console is told how to have one", async (t) => {
  const problems = [{ gateway: "b", why: "nobody is logged in", next: "keybearer mirror login b" }];
  t.match(
    keysInWords({ keys: [key({})], problems }, NOW, WIDE),
    /\nb: its keys cannot be listed: nobody is logged in → keybearer mirror login b\n$/,
  );
  t.match(keysInWords({ keys: [], problems: [] }, NOW, WIDE), /no console is mirrored/);
});

t.test("keys prints what the daemon says, and fails where nothing could be listed", async (t) => {
  let answer: KeysAnswer = { keys: [key({})], problems: [] };
  const { home } = await startMirrorControl(t, { "GET /keys": () => answer });
  t.match(await command(t, home, ["keys"]), { code: 0, stdout: /^name +key [\s\S]*\ncodex / });
  const json = await command(t, home, ["keys", "--json"]);
  t.strictSame(JSON.parse(json.stdout), answer);
  answer = { keys: [], problems: [{ gateway: "main", why: "nobody is logged in", next: null }] };
  t.match(await command(t, home, ["keys"]), { code: 1, stdout: /^main: its keys cannot be listed/ });
});

const FACTS: ToolConsoleFacts = {
  state: "active",
  group: "coding",
  multiplier: 1.5,
  multiplier_here: null,
  quota: 50_000_000,
  quota_used: 12_400_000,
  windows: [{ window: "5h", most: 5_000_000, used: 1_200_000, resets_at: null }],
  expires_at: Date.UTC(2027, 2, 31, 12),
  balance: 8_100_000,
  as_of: NOW - 60_000,
};

t.test("a tool's line has what the console says of its key", async (t) => {
  const line = (more: Partial<ToolConsoleFacts>) => consoleLines({ ...FACTS, ...more }, NOW, 200).join("\n");
  t.equal(
    line({}),
    "    console: $12.40 of $50 used, 5h $1.20/$5, group coding ×1.5, expires 2027-03-31, balance $8.10",
  );
  t.match(line({ multiplier_here: 1 }), "group coding ×1.5 (config.yaml says ×1),");
  t.match(line({ state: "quota-exhausted" }), /^ {4}console: key quota-exhausted, /);
  t.match(line({ as_of: NOW - 3 * 3_600_000 }), /, as of 3 h ago$/);
  t.strictSame(
    consoleLines({ ...FACTS, ...BARE, balance: null, state: "unknown" }, NOW, 80),
    [],
    "a console that says nothing has no line",
  );
  t.strictSame(consoleLines(null, NOW, 80), []);
});

t.test("tools shows that line below the tool's limits, within the screen", async (t) => {
  const tool: ToolStatus = {
    ...{
      name: "codex",
      state: "active",
      gateway: "main",
      group: null,
      key: "…a1b2",
      tokens: 1,
      last_use: null,
    },
    ...{ why: null, next: null, refused: null, paused: null, running: 0, waiting: 0, expires: null },
    limits: [{ limit: "concurrent", per: null, used: 0, held: 0, most: 4, extra: 0, resets_at: null }],
    console: FACTS,
  };
  const shown = listInWords([tool, { ...tool, name: "chat", console: null }], NOW, { width: 60, utf8: true });
  t.match(
    shown,
    /\ncodex .*\n {4}concurrent .*\n {4}console: \$12\.40 of \$50 used,.*\n {6}.*balance \$8\.10\nchat .*\n {4}concurrent [^\n]*\n$/,
  );
});
