import t, { type Test } from "tap";
import type { SessionStatus } from "../../src/control/session-status.ts";
import { advice } from "../../src/core/advice.ts";
import { advised, command, flat } from "../doubles/command.ts";
import { type Journey, startLimited } from "../doubles/limited-journey.ts";
import { atScreen } from "../doubles/screen.ts";
import { until } from "../doubles/until.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// No day may end during a test.
process.env.TZ = zoneAtNoon();

const NIGHT = "01a1f1f3-1899-7781-84ea-6a13834252f2";
const of = (session: string) => ({ headers: { "x-session-id": session } });

async function sessionOf({ control }: Journey, id: string): Promise<SessionStatus | undefined> {
  return (await control<SessionStatus[]>("GET", "/sessions")).find(({ session }) => session === id);
}

/** Types a command at a terminal, and answers its question. Returns what it printed. */
async function answer(t: Test, home: string, args: readonly string[], question: RegExp, text: string) {
  const person = atScreen(t, home, args);
  await person.says(question);
  person.type(text);
  const { code, stdout } = await person.ended;
  return { code, text: flat(stdout) };
}

t.test("each command that a session's refusal and its answer advise works where it is printed", async (t) => {
  const journey = await startLimited(t, "limits: { session: { requests: 1 } }");
  const { home, call } = journey;
  t.equal((await call(of(NIGHT))).status, 200);
  const limited = await call(of(NIGHT));
  t.equal(limited.refusal, "session-limited");
  const unknown = await command(t, home, ["sessions", "show", "nothing"]);
  const listed = await command(t, home, advised(t, unknown.stderr, advice.sessions()));
  t.match(flat(listed.stdout), /limit/);
  t.match(flat(listed.stdout), /1 of 1 requests/);

  const lift = advised(t, limited.text, advice.liftSession(NIGHT, "requests", "1"));
  const given = await answer(t, home, lift, /give session .* 1 request more\?/, "y\r");
  t.equal(given.code, 0, given.text);
  t.match(given.text, /requests: 1 of 1\+1 used/);
  t.equal((await call(of(NIGHT))).status, 200);
  const takeBack = advised(t, given.text, advice.takeBackSessionLift(NIGHT));
  t.equal((await answer(t, home, takeBack, /take back what session/, "y\r")).code, 0);
  t.equal((await call(of(NIGHT))).refusal, "session-limited");

  const stopped = await command(t, home, ["sessions", "stop", NIGHT.slice(0, 8)]);
  t.equal(stopped.code, 0, stopped.stderr);
  t.match(flat(stopped.stdout), `session ${NIGHT} of codex is stopped`);
  const refused = await call(of(NIGHT));
  t.equal(refused.refusal, "session-stopped");
  t.match((await command(t, home, ["sessions"])).stdout, /stopped/);
  const allow = advised(t, refused.text, advice.allowSession(NIGHT));
  t.strictSame(allow, advised(t, stopped.stdout, advice.allowSession(NIGHT)));
  t.equal((await answer(t, home, allow, /allow session .* again\?/, "y\r")).code, 0);
  t.equal((await call(of(NIGHT))).refusal, "session-limited");
});

t.test("stop cuts what runs; allow and lift need a person, and change nothing without one", async (t) => {
  const journey = await startLimited(t, "limits: { session: { spend: $1 } }");
  const { home, call, gateway } = journey;
  const running = call({ ...of(NIGHT), play: "hang" }).catch(() => null);
  await until("it is at the gateway", () => gateway.running() === 1);
  const stopped = await command(t, home, ["sessions", "stop", NIGHT]);
  t.match(flat(stopped.stdout), /is stopped; 1 request in flight cut/);
  t.equal(await running, null);
  for (const input of ["y\n", ""]) {
    const allowed = await command(t, home, ["sessions", "allow", NIGHT], { input });
    t.equal(allowed.code, 2);
    t.match(flat(allowed.stderr), "allow needs a person at a terminal");
    const lifted = await command(t, home, ["sessions", "lift", NIGHT, "--spend", "5"], { input });
    t.equal(lifted.code, 2);
    t.match(flat(lifted.stderr), `keybearer sessions lift ${NIGHT} --spend`);
  }
  t.match(await sessionOf(journey, NIGHT), { stopped: true, limits: [{ extra: 0 }] });
  const declined = await answer(t, home, ["sessions", "allow", NIGHT], /again\?/, "n\r");
  t.match(declined.text, /not allowed; nothing changed/);
  t.match(await sessionOf(journey, NIGHT), { stopped: true });
});

t.test(
  "a session that does not exist or is not limited is refused in words, and a process stands for its token and day",
  async (t) => {
    const journey = await startLimited(t, "");
    const { home, call } = journey;
    t.equal((await call(of(NIGHT))).status, 200);
    t.equal((await call(of("process-4711-1794744000"))).status, 200);
    const none = await command(t, home, ["sessions", "stop", "nothing"]);
    t.equal(none.code, 1);
    t.match(flat(none.stderr), /there is no session nothing → keybearer sessions/);
    const process = await command(t, home, ["sessions", "stop", "process-4711"]);
    t.equal(process.code, 0, process.stderr);
    const [shared = ""] = /\d{4}-\d\d-\d\d\/\S+/.exec(flat(process.stdout)) ?? [];
    t.match(flat(process.stdout), `requests that name no session count together, as ${shared}`);
    const refused = await call();
    t.equal(refused.refusal, "session-stopped");
    const allow = advised(t, refused.text, advice.allowSession(shared, "codex"));
    t.equal((await answer(t, home, allow, /again\?/, "y\r")).code, 0);
    t.equal((await call()).status, 200);
    const lifted = await answer(t, home, ["sessions", "lift", NIGHT, "--spend", "5"], /more\?/, "y\r");
    t.equal(lifted.code, 1);
    t.match(lifted.text, /has no limit on spend for a session/);
    const unknown = await command(t, home, ["sessions", "stop", "2020-01-01/laptop"]);
    t.equal(unknown.code, 1);
    await command(t, home, ["sessions", "stop", NIGHT]);
    const other = await call(of("another"));
    t.equal(other.status, 200);
  },
);
