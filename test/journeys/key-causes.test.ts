import t from "tap";
import type { ConsoleDouble } from "../doubles/consoles/console-double.ts";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { examineHome } from "../doubles/doctor.ts";
import { oneOf } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { type Callers, MINUTE, startBeside, startJourney } from "../doubles/mirror-journey.ts";
import { until } from "../doubles/until.ts";

/** Why a gateway refuses a key, where a login lists the keys. */

const STATES = ["disabled", "expired", "used up", "deleted"] as const;
const DETAILS = ["key-disabled", "key-expired", "key-quota", "key-deleted"] as const;
const FINDINGS = [/^disabled key/, /^expired key/, /the key's own quota is used up/, /^deleted key/];
/** Ten tools, so that one lookup for each would use up most of the 16 that there are. */
const TOOLS = Array.from({ length: 10 }, (_, at) => `tool-${at}`);

/** Each key has a quota, so that it can be used up. */
function addQuotas(console: ConsoleDouble, callers: Callers): void {
  console.keys.length = 0;
  for (const { name, key } of Object.values(callers)) console.addKey({ name, key, quota: 10 });
}

/** Gives the tools' keys the four states in turn. */
function spoil(console: ConsoleDouble, callers: Callers, now: number): void {
  for (const [at, name] of TOOLS.entries()) {
    const key = console.keys.find((one) => one.key === callers[name]?.key);
    if (key === undefined) throw new Error(`there is no key of ${name}`);
    switch (STATES[at % STATES.length]) {
      case "disabled":
        key.disabled = true;
        break;
      case "expired":
        key.expiresAt = now - 5000;
        break;
      case "used up":
        key.usedDollars = 10;
        break;
      default:
        console.deleteKey(key);
    }
  }
}

function lookups({ asked }: ConsoleDouble): number {
  return asked.filter(({ path }) => /^\/api\/(?:usage|log)\/token/.test(path)).length;
}

function lists({ asked }: ConsoleDouble): number {
  return asked.filter(({ path }) => path.startsWith("/api/token/?p=")).length;
}

for (const version of oneOf(["v0.13.2", "v1.0.0-rc.25"], "v1.0.0-rc.25"))
  t.test(`${version}: one list of a login explains the refusals of ten tools`, async (t) => {
    const clock = heldClock();
    const console = await startNewApi(t, { now: clock.now, limits: true, version });
    const tools = { codex: "", ...Object.fromEntries(TOOLS.map((name) => [name, ""])) };
    const journey = await startBeside(t, console, clock, { tools, before: addQuotas });
    await journey.idle();
    spoil(console, journey.callers, clock.now());
    clock.pass(MINUTE);
    const listsBefore = lists(console);
    for (const tool of TOOLS) t.equal((await journey.ask({}, { tool })).status, 401);
    const refused = async () => (await journey.status()).tools.filter(({ name }) => TOOLS.includes(name));
    await until("all are explained", async () =>
      (await refused()).every(({ refused }) => (refused?.detail ?? null) !== null),
    );
    t.strictSame(
      (await refused()).map(({ refused }) => refused?.detail),
      TOOLS.map((_, at) => DETAILS[at % DETAILS.length]),
    );
    // The sync of a minute that begins meanwhile reads its own.
    t.ok(lists(console) - listsBefore <= 2, "not one for each of the ten tools");
    const answer = await journey.ask({}, { tool: "tool-3" });
    t.equal(answer.headers.get("x-keybearer-cause-detail"), "key-deleted", "the next answer has it");

    const findings = await examineHome(journey.paths, {}, clock.now());
    for (const [at, name] of TOOLS.entries())
      t.match(
        findings.filter(({ about }) => about === `tool ${name}`),
        [{ id: "key", level: "problem", what: FINDINGS[at % FINDINGS.length] }],
      );
    t.equal(lookups(console), 0, "and nothing was asked with the keys");
  });

t.test("without a login, the list is not read: a refused key is looked up by itself", async (t) => {
  const clock = heldClock();
  const console = await startNewApi(t, { now: clock.now, limits: true, keyOnly: true });
  const journey = await startBeside(t, console, clock);
  await journey.idle();
  const before = lookups(console);
  const [key] = console.keys;
  if (key === undefined) throw new Error("there is no key");
  key.disabled = true;
  clock.pass(MINUTE);
  t.equal((await journey.ask()).status, 401);
  const detail = async () => (await journey.status()).tools[0]?.refused?.detail;
  await until("it is explained", async () => (await detail()) === "key-disabled");
  t.strictSame([lookups(console) - before, lists(console)], [1, 0]);
});

t.test("a list that cannot be read is replaced by a lookup with the key", async (t) => {
  const clock = heldClock();
  const console = await startNewApi(t, { now: clock.now, limits: true });
  const journey = await startBeside(t, console, clock);
  await journey.idle();
  const [key] = console.keys;
  if (key === undefined) throw new Error("there is no key");
  key.disabled = true;
  clock.pass(MINUTE);
  console.onReply = ({ path }, reply) =>
    path === "/api/token/" ? { status: 500, body: "database is locked" } : reply;
  t.equal((await journey.ask()).status, 401);
  const detail = async () => (await journey.status()).tools[0]?.refused?.detail;
  await until("it is explained", async () => (await detail()) === "key-disabled");
  t.equal(lookups(console), 1);
});

t.test("sub2api: a key that its login does not list any more is deleted, not incomplete", async (t) => {
  const journey = await startJourney(t, "sub2api");
  await journey.idle();
  journey.console.keys.length = 0;
  journey.clock.pass(MINUTE);
  t.equal((await journey.ask()).headers.get("x-keybearer-cause"), "incomplete-key");
  const detail = async () => (await journey.status()).tools[0]?.refused?.detail;
  await until("the list was read", async () => (await detail()) === "key-deleted");
  t.match(
    (await examineHome(journey.paths, {}, journey.clock.now())).filter(({ about }) => about === "tool codex"),
    [{ id: "key", level: "problem", what: /^deleted key/ }],
  );
});
