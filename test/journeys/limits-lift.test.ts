import t from "tap";
import type { AllowanceAnswer } from "../../src/control/routes.ts";
import { command } from "../doubles/command.ts";
import { heldWall, startLimited } from "../doubles/limited-journey.ts";
import { until } from "../doubles/until.ts";

const SETTINGS = "limits: { requests: [2/minute, 100/day] }";
const lift = (amount: number, until: number | null = null) => ({ kind: "requests", amount, until });

t.test("an allowance counts once, survives a restart, and ends with its window", async (t) => {
  const clock = heldWall();
  const first = await startLimited(t, SETTINGS, { clock });
  // No request of this tool came before.
  const answer = await first.control<AllowanceAnswer>("POST", "/lift/codex", lift(3));
  t.match(answer, {
    tool: "codex",
    problem: null,
    levels: [
      { most: 5, extra: 3 },
      { most: 103, extra: 3 },
    ],
  });
  for (let nth = 0; nth < 5; nth += 1) t.equal((await first.call()).status, 200);
  const refused = await first.call();
  t.equal(refused.refusal, "rate-limited");
  t.match(refused.text, "at its limit of 2+3 requests per minute: 5 of 2+3 used.");
  t.match((await first.codex()).why, /^requests\/minute is used up: 5 of 2\+3, /);
  t.match((await command(t, first.home, ["tools"])).stdout, / 5\/2\+3 /);
  t.ok(
    first
      .log()
      .some(
        ({ tool, kind, amount, peer }) => tool === "codex" && kind === "requests" && amount === 3 && peer,
      ),
    "the log says who gave it",
  );
  await first.daemon.stop(0);

  const again = { clock, home: first.home, gateway: first.gateway, credentials: first };
  const second = await startLimited(t, SETTINGS, again);
  t.strictSame(await second.level("requests", "minute"), [5, 0, 5], "not given twice by the restart");
  t.equal((await second.call()).refusal, "rate-limited");
  await second.control("POST", "/lift/codex", lift(1));
  t.equal((await second.call()).status, 200);
  t.equal((await second.call()).refusal, "rate-limited");
  clock.pass(60_000);
  t.strictSame(await second.level("requests", "minute"), [0, 0, 2], "the next minute is as in the file");
  t.strictSame(await second.level("requests", "day"), [6, 0, 104], "the day still has it");
  await second.daemon.stop(0);

  const third = await startLimited(t, SETTINGS, again);
  t.strictSame(await third.level("requests", "minute"), [0, 0, 2], "nor does a restart bring it back");
  t.strictSame(await third.level("requests", "day"), [6, 0, 104]);
  clock.pass(24 * 3_600_000);
  t.strictSame(await third.level("requests", "day"), [0, 0, 100]);
});

t.test("an allowance with a time counts in every window until then, also after a restart", async (t) => {
  const clock = heldWall();
  const first = await startLimited(t, SETTINGS, { clock });
  await first.control("POST", "/lift/codex", lift(1, clock.now() + 90_000));
  t.strictSame(await first.level("requests", "minute"), [0, 0, 3]);
  clock.pass(60_000);
  t.strictSame(await first.level("requests", "minute"), [0, 0, 3]);
  await first.daemon.stop(0);
  const again = { clock, home: first.home, gateway: first.gateway, credentials: first };
  const second = await startLimited(t, SETTINGS, again);
  t.strictSame(await second.level("requests", "minute"), [0, 0, 3]);
  clock.pass(31_000);
  t.strictSame(await second.level("requests", "minute"), [0, 0, 2]);
});

t.test("an allowance admits requests that wait", async (t) => {
  const { call, codex, control } = await startLimited(t, "limits: { requests: 1/minute, wait: 55s }", {
    clock: heldWall(),
  });
  t.equal((await call()).status, 200);
  const waits = call();
  await until("it waits", async () => (await codex()).waiting === 1);
  await control("POST", "/lift/codex", lift(1));
  t.equal((await waits).status, 200);
});

t.test("a limit that cannot be lifted is reported, and nothing changes", async (t) => {
  const { control, level } = await startLimited(t, SETTINGS, { clock: heldWall() });
  const none = await control<AllowanceAnswer>("POST", "/lift/codex", {
    kind: "spend",
    amount: 5,
    until: null,
  });
  t.match(none.problem, /tool codex has no limit on spend/);
  await t.rejects(control("POST", "/lift/nobody", lift(1)), /nobody/);
  for (const wrong of [lift(-1), lift(0.5), { kind: "quota", amount: 1, until: null }, {}])
    await t.rejects(control("POST", "/lift/codex", wrong), /send what to lift/);
  t.strictSame(await level("requests", "minute"), [0, 0, 2]);
});
