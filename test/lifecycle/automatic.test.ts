import t from "tap";
import { AutomaticRotation } from "../../src/lifecycle/automatic.ts";
import { Refused } from "../../src/lifecycle/refused.ts";
import type { KeyReport } from "../../src/mirror/report/shape.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { snapshotOf } from "../doubles/parsed-config.ts";
import { quietLog } from "../doubles/quiet-log.ts";

const DAY = 86_400_000;
const CONFIG = `
gateways: { main: { base_url: https://gateway.example.com/v1, console: { url: https://gateway.example.com } } }
tools:
  codex: { rotate_every: 90d }
  zed: { rotate_every: 30d }
  scripts: {}
`;

function keyOf(tool: string, created_at: number | null): KeyReport {
  return {
    ...{ gateway: "main", ref: `id:${tool}`, name: tool, key: null, tools: [tool], state: "active" },
    ...{ group: null, multiplier: null, quota: null, unlimited: true, quota_used: null, windows: [] },
    ...{ created_at, expires_at: null, last_used_at: null, as_of: null },
  };
}

function setUp(ages: Readonly<Record<string, number | null>>) {
  const clock = heldClock();
  const keys = Object.entries(ages).map(([tool, age]) =>
    keyOf(tool, age === null ? null : clock.now() - age),
  );
  const rotated: string[] = [];
  const lines: string[] = [];
  const found = { fault: null as Refused | null };
  const automatic = new AutomaticRotation({
    clock,
    log: quietLog(lines),
    snapshot: () => snapshotOf(CONFIG),
    consoles: { listKeys: async () => keys },
    intents: { lastLeak: () => null, noteLeak: async () => {} },
    lifecycle: {
      rotate: async (tool, { reason }) => {
        rotated.push(`${tool} ${reason}`);
        if (found.fault !== null) throw found.fault;
        return { tool, old: "…old1", new: "…new1", state: "done", why: null };
      },
    },
    onRotated: () => {},
  });
  return { clock, automatic, rotated, lines, found };
}

t.test("only keys that are older than their tool allows are rotated", async (t) => {
  const { automatic, rotated } = setUp({ codex: 89 * DAY, zed: 31 * DAY, scripts: 900 * DAY });
  await automatic.checkAges();
  t.strictSame(rotated, ["zed age"]);
});

t.test("a key without a known age is not rotated", async (t) => {
  const { automatic, rotated } = setUp({ codex: null, zed: null });
  await automatic.checkAges();
  t.strictSame(rotated, []);
});

t.test("a rotation that fails is reported, and tried again a day later", async (t) => {
  const { automatic, rotated, lines, clock, found } = setUp({ codex: 91 * DAY });
  found.fault = new Refused("the console of main allows no more keys");
  await automatic.checkAges();
  await automatic.checkAges();
  t.strictSame(rotated, ["codex age"], "not in the same hour");
  t.match(
    lines.join(""),
    /could not be rotated because of its age: .*allows no more keys → keybearer tools rotate codex/,
  );
  clock.pass(DAY);
  await automatic.checkAges();
  t.strictSame(rotated, ["codex age", "codex age"]);
});

t.test("with a clock that is far ahead a key is rotated once a day, not every hour", async (t) => {
  const { automatic, rotated, clock } = setUp({ codex: 400 * DAY });
  await automatic.checkAges();
  clock.pass(DAY / 24);
  await automatic.checkAges();
  t.strictSame(rotated, ["codex age"]);
});
