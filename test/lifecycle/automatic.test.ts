import t from "tap";
import { type KeyState, Snapshot } from "../../src/config/snapshot.ts";
import { Secret } from "../../src/core/secret.ts";
import { AutomaticRotation } from "../../src/lifecycle/automatic.ts";
import { Refused } from "../../src/lifecycle/refused.ts";
import type { KeyReport } from "../../src/mirror/report/shape.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { until } from "../doubles/until.ts";

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

function setUp(ages: Readonly<Record<string, number | null>>, zedKey: string | null = null) {
  const clock = heldClock();
  const keyStates = new Map<string, KeyState>();
  if (zedKey !== null) keyStates.set("zed", { state: "ready", key: new Secret(zedKey) });
  const keys = Object.entries(ages).map(([tool, age]) =>
    keyOf(tool, age === null ? null : clock.now() - age),
  );
  const rotated: string[] = [];
  const listed: string[] = [];
  const lines: string[] = [];
  const probes: string[] = [];
  const leaks = new Map<string, number>();
  const found = {
    /** How far our clock is ahead of the console's. */
    ahead: 0,
    fault: null as Refused | null,
    elsewhere: [] as { machine: string; key: string; successor: string }[],
    verdict: "accepted" as "accepted" | "refused" | "unclear",
  };
  const automatic = new AutomaticRotation({
    clock,
    log: quietLog(lines),
    snapshot: () => new Snapshot(1, configOf(CONFIG), keyStates, []),
    consoles: {
      listKeys: async (gateway) => {
        listed.push(gateway);
        return keys;
      },
      now: () => clock.now() - found.ahead,
    },
    intents: {
      lastReplaced: (tool) => leaks.get(tool) ?? null,
      noteReplaced: async (tool, at) => void leaks.set(tool, at),
    },
    lifecycle: {
      replace: async (tool, like) => {
        rotated.push(`${tool} like ${like}`);
        if (found.fault !== null) throw found.fault;
        return { tool, old: "…old1", new: "…new1", state: "done", why: null };
      },
      rotate: async (tool, { reason }) => {
        rotated.push(`${tool} ${reason}`);
        if (found.fault !== null) throw found.fault;
        return { tool, old: "…old1", new: "…new1", state: "done", why: null };
      },
    },
    rotatedElsewhere: () => found.elsewhere,
    probe: async () => {
      probes.push(found.verdict);
      return { state: found.verdict, problem: "", next: "" };
    },
    onRotated: () => {},
  });
  return { clock, automatic, rotated, listed, lines, found, probes };
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

t.test("ages are checked at the start, with one list of keys for all tools of a gateway", async (t) => {
  const { automatic, rotated, listed } = setUp({ codex: 91 * DAY, zed: 31 * DAY });
  automatic.start();
  t.teardown(() => automatic.stop());
  await until("both are rotated", () => rotated.length === 2);
  t.strictSame(rotated, ["codex age", "zed age"]);
  t.strictSame(listed, ["main"]);
});

t.test("a key's age is by the console's clock, however wrong ours is", async (t) => {
  const { automatic, rotated, found } = setUp({ codex: 400 * DAY });
  found.ahead = 399 * DAY;
  await automatic.checkAges();
  t.strictSame(rotated, []);
});

t.test("a key whose listed age stays too old is rotated once a day, not every hour", async (t) => {
  const { automatic, rotated, clock } = setUp({ codex: 400 * DAY });
  await automatic.checkAges();
  clock.pass(DAY / 24);
  await automatic.checkAges();
  t.strictSame(rotated, ["codex age"]);
});

const KEY = "sk-shared-0123456789abcdef";
const MINUTE = 60_000;

/** Another machine says that it rotated the key of the tool `zed`. */
function besideMachine() {
  const world = setUp({}, KEY);
  world.found.elsewhere = [{ machine: "laptop", key: "…cdef", successor: "codex-abc1234" }];
  return { ...world, check: () => world.automatic.checkSiblings() };
}

t.test(
  "a key that another machine deleted is replaced once the gateway refuses it, once a day",
  async (t) => {
    const { check, clock, found, rotated, probes, lines } = besideMachine();
    found.verdict = "unclear";
    await check();
    await check();
    t.strictSame([probes, rotated], [["unclear"], []], "a gateway that does not answer says nothing");
    clock.pass(10 * MINUTE);
    found.verdict = "refused";
    await check();
    t.strictSame(rotated, ["zed like codex-abc1234"]);
    t.match(
      lines.join(""),
      /gave zed a key of its own, because machine laptop deleted the one that both used/,
    );
    clock.pass(DAY - MINUTE);
    await check();
    t.equal(rotated.length, 1, "not on the same day");
    clock.pass(2 * MINUTE);
    await check();
    t.equal(rotated.length, 2);
  },
);

t.test("a key that works, or that no machine reports as rotated, is not replaced", async (t) => {
  const { check, clock, found, rotated, probes } = besideMachine();
  await check();
  clock.pass(DAY);
  await check();
  t.strictSame([probes, rotated], [["accepted"], []], "one question is enough");
  found.verdict = "refused";
  found.elsewhere = [{ machine: "laptop", key: "…0000", successor: "codex-abc1234" }];
  await check();
  t.strictSame([probes.length, rotated], [1, []], "a refusal alone is no reason");
});

t.test("a replacement that fails is reported, and tried again ten minutes later", async (t) => {
  const { check, clock, found, rotated, lines } = besideMachine();
  found.verdict = "refused";
  found.fault = new Refused("the console of main needs a login");
  await check();
  await check();
  t.equal(rotated.length, 1);
  t.match(lines.join(""), /zed got no key of its own: .*needs a login → keybearer tools rotate zed/);
  clock.pass(10 * MINUTE);
  await check();
  t.equal(rotated.length, 2);
});
