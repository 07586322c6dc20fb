import t from "tap";
import { formatKeys } from "../../src/cli/keys.ts";
import { consoleLines, listInWords } from "../../src/cli/tools/list.ts";
import type { ToolStatus } from "../../src/control/tool-status.ts";
import type { KeyReport, KeysAnswer, ToolConsoleFacts } from "../../src/mirror/report/shape.ts";
import { command } from "../doubles/command.ts";
import { mirrorReport, startMirrorControl } from "../doubles/mirror-control.ts";

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
    created_at: NOW - 86_400_000,
    last_used_at: NOW - 180_000,
    unlimited: false,
    as_of: NOW - 12_000,
    ...more,
  };
}

const BARE = { group: null, multiplier: null, quota: null, quota_used: null, windows: [], expires_at: null };

t.test("the console's keys are listed with the tools that hold them and all facts", async (t) => {
  const keys = [
    key({}),
    key({ ...BARE, name: "old laptop", key: null, tools: [], state: "disabled", last_used_at: null }),
  ];
  const shownAt = (width: number) => formatKeys({ keys, problems: [] }, NOW, { width, utf8: true });
  const shown = `name        key    state     tool
codex       …a1b2  active    codex
  id:12, $12.40 of $50.00 used, 5h $1.20/$5.00, group coding ×1.5, expires 2027-03-31, last use 3 min ago
old laptop  -      disabled  not held here
  id:12, quota unknown, last use unknown
as the console said 12 s ago
create a key → keybearer tools add <tool> --gateway main --create --group <group>
rotate a tool's key → keybearer tools rotate <tool>
delete one that no tool holds → keybearer keys delete <key>
`;
  t.equal(shownAt(120), shown);
  t.equal(shownAt(160), shown);
  const narrow = shown
    .replace(" 2027-03-31,", "\n    2027-03-31,")
    .replace("create a key →", "create a key\n  →");
  t.equal(shownAt(80), narrow, "wrapped, with the same words");
});

t.test("on a narrow screen names are shortened, which a line explains, and facts are wrapped", async (t) => {
  const name = "the key of the laptop in the attic";
  const shown = formatKeys({ keys: [key({ name, tools: [] })], problems: [] }, NOW, {
    width: 40,
    utf8: true,
  });
  t.match(shown, /^name .*tool\nthe .*… +…a1b2 +active +not .*\n/);
  t.match(
    shown.replace(/\s+/g, " "),
    "5h $1.20/$5.00, group coding ×1.5, expires 2027-03-31, last use 3 min ago",
  );
  t.match(shown, /… marks shortened texts/);
  const isCommand = (line: string) => line.trimStart().startsWith("→");
  t.ok(shown.split("\n").every((line) => line.length <= 40 || isCommand(line)));
});

t.test("only a key that the console calls unlimited is unlimited", async (t) => {
  const quotaOf = (more: Partial<KeyReport>) =>
    formatKeys({ keys: [key({ ...BARE, ...more })], problems: [] }, NOW, WIDE).split("\n")[2];
  t.equal(quotaOf({}), "  id:12, quota unknown, last use 3 min ago");
  t.equal(quotaOf({ quota_used: 500_000 }), "  id:12, $0.50 used, quota unknown, last use 3 min ago");
  t.equal(quotaOf({ unlimited: true }), "  id:12, quota unlimited, last use 3 min ago");
  t.equal(
    quotaOf({ unlimited: true, quota_used: 500_000 }),
    "  id:12, $0.50 used, quota unlimited, last use 3 min ago",
  );
  t.equal(quotaOf({ as_of: null, state: "unknown" }), "  id:12, the console was not asked about it yet");
});

t.test("a used up window shows when it resets, and an expiry whether it has passed", async (t) => {
  const window = { window: "5h", most: 5_000_000, used: 5_000_000, resets_at: NOW + 3_600_000 - 30_000 };
  const more = { windows: [window], expires_at: NOW - 86_400_000 };
  const shown = formatKeys({ keys: [key(more)], problems: [] }, NOW, WIDE);
  t.match(shown, ", 5h $5.00/$5.00 until 13:00, group coding ×1.5, expired 2026-11-14, ");
});

t.test("several gateways are listed separately, each with the age of its answer", async (t) => {
  const keys = [
    key({ ...BARE }),
    key({ ...BARE, gateway: "b", name: "\u001b[2J", as_of: NOW - 3_600_000 }),
    key({ ...BARE, name: "chat", as_of: NOW - 1_200_000 }),
  ];
  const shown = formatKeys({ keys, problems: [] }, NOW, WIDE);
  t.match(shown, /^gateway +name +key +state +tool\nmain .*\n.*\nb +\?\[2J /);
  t.match(shown, /\nmain +chat .*\n {2}id:12, quota unknown, last use 3 min ago, as of 20 min ago\n/);
  t.match(shown, /\nmain: as the console said 12 s ago\nb: as the console said 60 min ago\ncreate a key/);
});

t.test("keys that cannot be listed are reported, and a missing console has a next step", async (t) => {
  const problems = [{ gateway: "b", why: "nobody is logged in", next: "keybearer mirror login b" }];
  t.match(
    formatKeys({ keys: [key({})], problems }, NOW, WIDE),
    /\nb: its keys cannot be listed: nobody is logged in → keybearer mirror login b\ncreate a key/,
  );
  t.match(formatKeys({ keys: [], problems: [] }, NOW, WIDE), /no console is mirrored/);
});

t.test("keys prints the daemon's answer, and fails if no key could be listed", async (t) => {
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
  created_at: Date.UTC(2026, 9, 1),
  expires_at: Date.UTC(2027, 2, 31, 12),
  balance: 8_100_000,
  as_of: NOW - 60_000,
};

t.test("a tool's line has the console's facts about its key", async (t) => {
  const line = (more: Partial<ToolConsoleFacts>) => consoleLines({ ...FACTS, ...more }, NOW, 200).join("\n");
  t.equal(
    line({}),
    "    console: $12.40 of $50.00 used, 5h $1.20/$5.00, group coding ×1.5, expires 2027-03-31, balance $8.10",
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

t.test("tools shows the console's facts below the tool's limits, wrapped to the screen", async (t) => {
  const tool: ToolStatus = {
    ...{
      name: "codex",
      state: "active",
      gateway: "main",
      group: null,
      watch_only: false,
      key: "…a1b2",
      tokens: 1,
      last_use: null,
    },
    ...{ why: null, next: null, refused: null, paused: null, running: 0, waiting: 0, expires: null },
    limits: [
      {
        limit: "concurrent",
        per: null,
        used: 0,
        estimated: 0,
        held: 0,
        most: 4,
        extra: 0,
        resets_at: null,
        machines: [],
      },
    ],
    console: FACTS,
  };
  const shown = listInWords([tool, { ...tool, name: "chat", console: null }], NOW, { width: 60, utf8: true });
  t.match(
    shown,
    /\ncodex .*\n {4}concurrent .*\n {4}console: \$12\.40 of \$50\.00 used,.*\n {6}.*balance \$8\.10\nchat .*\n {4}concurrent [^\n]*\n$/,
  );
});

t.test("a command that waits for the console's limit says so, and how long", async (t) => {
  const polls: (() => void)[] = [];
  const limited_until = { rows: null, keys: Date.now() + 35_000 };
  const { home } = await startMirrorControl(t, {
    // Answered after the second poll.
    "POST /refreshkeys": () =>
      new Promise((resolve) => {
        polls.push(
          () => {},
          () => resolve({ keys: [key({})], problems: [] }),
        );
      }),
    "GET /status": () => {
      polls.shift()?.();
      return { consoles: [{ ...mirrorReport(Date.now()), limited_until }] };
    },
  });
  const { code, stdout, stderr } = await command(t, home, ["keys", "list", "--refresh"]);
  t.equal(code, 0, stderr);
  t.match(stdout, /codex/);
  t.equal(stderr, "main: waiting for the console's limit, about 40 s\n");
});
