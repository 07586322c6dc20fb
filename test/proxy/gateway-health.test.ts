import t from "tap";
import type { Gateway } from "../../src/config/schema.ts";
import { GatewayHealth } from "../../src/proxy/gateway-health.ts";
import { NOTHING_OBSERVED } from "../../src/proxy/observer.ts";
import type { Outcome } from "../../src/proxy/outcome.ts";
import { heldClock } from "../doubles/held-clock.ts";

const MAIN = { name: "main", baseUrl: "http://a/v1", messagesUrl: "http://a/v1", proxy: null } as Gateway;
const OTHER = { ...MAIN, name: "other" };
const FAILED = { end: "gateway-failed", problem: "it was cut", observed: NOTHING_OBSERVED } as Outcome;
const CUT = { ...FAILED, observed: { ...NOTHING_OBSERVED, firstByteElapsed: 1 } } as Outcome;
const WHOLE = { ...CUT, end: "complete", problem: null } as Outcome;
const ERROR_PAGE = { ...CUT, end: "complete", problem: "a proxy answered 502" } as Outcome;
const MINUTE = 60_000;

function scene() {
  const clock = heldClock();
  return { clock, health: new GatewayHealth(clock) };
}

t.test("how long a gateway failed is the time between its failures", async (t) => {
  const { clock, health } = scene();
  health.note(MAIN, FAILED);
  clock.pass(10 * MINUTE);
  t.match(health.of(MAIN), { state: "failing", failures: 1, failedForMs: 0 }, "one failure and a pause");
  health.noteWait(MAIN, "nothing listens there");
  t.match(health.of(MAIN), { failures: 1, failedForMs: 10 * MINUTE, problem: "nothing listens there" });
  clock.pass(MINUTE);
  health.note(MAIN, FAILED);
  t.match(health.of(MAIN), { failures: 2, failedForMs: 11 * MINUTE });
});

t.test("the head of a response ends a failure, and shows nothing of other gateways", async (t) => {
  const { clock, health } = scene();
  health.noteHead(MAIN);
  t.equal(health.of(MAIN).state, "unknown", "its end will show it");
  health.note(MAIN, FAILED);
  health.note(OTHER, FAILED);
  clock.pass(MINUTE);
  health.noteHead(MAIN);
  t.match(health.of(MAIN), { state: "reachable", since: clock.now(), failures: 0, failedForMs: 0 });
  t.equal(health.of(OTHER).state, "failing");
  clock.pass(MINUTE);
  health.note(MAIN, FAILED);
  t.match(health.of(MAIN), { failures: 1, failedForMs: 0, since: clock.now() }, "it begins again");
});

t.test("a wall clock that is set does not make a failure longer", async (t) => {
  let now = 1_800_000_000_000;
  const health = new GatewayHealth({ now: () => now, elapsed: () => 5 });
  health.note(MAIN, FAILED);
  now += 60 * MINUTE;
  health.note(MAIN, FAILED);
  t.equal(health.of(MAIN).failedForMs, 0);
});

t.test("a gateway that cuts every stream after its head fails for as long as it does", async (t) => {
  const { clock, health } = scene();
  for (let n = 0; n < 4; n += 1) {
    health.noteHead(MAIN);
    health.note(MAIN, CUT);
    t.match(health.of(MAIN), { state: "failing", failures: n + 1, failedForMs: n * 30_000 });
    clock.pass(30_000);
  }
  health.noteHead(MAIN);
  t.equal(health.of(MAIN).state, "failing", "another head shows nothing");
  health.note(MAIN, WHOLE);
  t.match(health.of(MAIN), { state: "reachable", failures: 0, failedForMs: 0 });
});

t.test("after a cut response, one that lasts a minute ends the failure, too", async (t) => {
  const { clock, health } = scene();
  health.note(MAIN, CUT);
  health.noteHead(MAIN);
  clock.pass(MINUTE - 1);
  health.noteHead(MAIN);
  t.equal(health.of(MAIN).state, "failing");
  clock.pass(1);
  t.match(health.of(MAIN), { state: "reachable", failedForMs: 0 });
  health.note(MAIN, CUT);
  t.match(health.of(MAIN), { state: "failing", failures: 1, failedForMs: 0 }, "it begins again");
});

t.test("after a restart or a proxy's error page, the head of a response is enough", async (t) => {
  for (const last of [FAILED, ERROR_PAGE]) {
    const { health } = scene();
    health.note(MAIN, CUT);
    health.note(MAIN, last);
    health.noteHead(MAIN);
    t.equal(health.of(MAIN).state, "reachable");
  }
  const { health } = scene();
  health.note(MAIN, CUT);
  health.noteWait(MAIN, "nothing listens there");
  health.noteHead(MAIN);
  t.equal(health.of(MAIN).state, "reachable");
});
