import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { systemClock } from "../../src/core/clock.ts";
import { createEventControls } from "../../src/daemon/event-controls.ts";
import type { Occurrence } from "../../src/events/event.ts";
import { Events } from "../../src/events/events.ts";
import { command, flat, newHome, start } from "../doubles/command.ts";
import { serveControls } from "../doubles/idle-control.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { until } from "../doubles/until.ts";

process.env.TZ = "UTC";

function occurrence(subject: string, message = `${subject} has failed`): Occurrence {
  return { kind: "gateway-down", severity: "warning", subject, message, next: "keybearer doctor" };
}

/** The control socket of a daemon that only has events. */
async function serve(t: Test, home: string) {
  mkdirSync(join(home, "state"), { recursive: true, mode: 0o700 });
  const events = new Events({
    file: join(home, "state", "events.jsonl"),
    clock: systemClock,
    log: quietLog(),
  });
  const control = await serveControls(t, home, createEventControls(events));
  return { events, close: () => control.close() };
}

t.test("events lists the last 20, --all every one, --json all fields", async (t) => {
  const home = await newHome(t);
  t.match((await command(t, home, ["events"])).stdout, "nothing was reported yet");
  const { events } = await serve(t, home);
  for (let n = 1; n <= 25; n += 1) events.report(occurrence(`gateway g${n}`));
  events.end("gateway-down", "gateway g25", "gateway g25 answers again");
  const { stdout } = await command(t, home, ["events"], { env: { COLUMNS: "200" } });
  const lines = stdout.trimEnd().split("\n");
  t.equal(lines.length, 20);
  t.match(
    lines[0],
    /^\d\d:\d\d {2}warning {3}gateway g7 {2}gateway g7 has failed \(still so\) → keybearer doctor$/,
  );
  t.match(lines.at(-2), /gateway g25 has failed → keybearer doctor$/);
  t.match(lines.at(-1), /^\d\d:\d\d {2}ended {5}gateway g25 {2}gateway g25 answers again$/);
  const all = await command(t, home, ["events", "--all", "--json"]);
  const listed = JSON.parse(all.stdout);
  t.equal(listed.length, 26);
  t.match(listed[0], { id: /^\w{26}$/, kind: "gateway-down", state: "begun", muted: false, active: true });
});

t.test("nothing in an event reaches the terminal as a control sequence", async (t) => {
  const home = await newHome(t);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  const event = {
    id: "0".repeat(26),
    at: 1,
    kind: "limit",
    severity: "info",
    state: "begun",
    next: "a\u001b[2J",
  };
  const line = JSON.stringify({ ...event, subject: "tool \u001b[31mx", message: "\u202egnirts" });
  writeFileSync(join(home, "state", "events.jsonl"), `${line}\n`);
  const { stdout } = await command(t, home, ["events"]);
  t.match(stdout, "tool ?[31mx");
  for (const sign of ["\u001b", "\u202e"]) t.notOk(stdout.includes(sign));
});

t.test("events --desktop alone is refused with the option that it needs", async (t) => {
  const { code, stdout, stderr } = await command(t, await newHome(t), ["events", "--desktop"]);
  t.equal(code, 2);
  t.equal(stdout, "");
  t.match(stderr, "--desktop is for new events → add --follow");
});

t.test(
  "events --follow prints each one once, over a restart of the daemon, and Ctrl-C ends it",
  async (t) => {
    const home = await newHome(t);
    const first = await serve(t, home);
    first.events.report(occurrence("gateway a"));
    const follower = start(t, home, ["events", "--follow", "--json"]);
    const subjects = () =>
      [...follower.stdout().matchAll(/"subject":"gateway (\w)"/g)].map(([, name]) => name);
    await until("the last ones are shown", () => subjects().length === 1);
    first.events.report(occurrence("gateway b"));
    await until("then those that come", () => subjects().length === 2);
    await first.close();
    await follower.logs(/waiting for it/);
    // Reported while nobody could follow.
    first.events.report(occurrence("gateway c"));
    const second = new Events({
      file: join(home, "state", "events.jsonl"),
      clock: systemClock,
      log: quietLog(),
    });
    const control = await serveControlsAgain(t, home, second);
    await until("what was missed is shown", () => subjects().length === 3);
    second.report(occurrence("gateway d"));
    await until("and the next one", () => subjects().length === 4);
    t.same(subjects(), ["a", "b", "c", "d"]);
    follower.child.kill("SIGINT");
    t.equal((await follower.ended).code, 0);
    await control.close();
  },
);

function serveControlsAgain(t: Test, home: string, events: Events) {
  rmSync(join(home, "run"), { recursive: true });
  return serveControls(t, home, createEventControls(events));
}

t.test("events mute says what it does, and refuses what it cannot do", async (t) => {
  const home = await newHome(t);
  const { events } = await serve(t, home);
  const mute = async (...args: string[]) => {
    const { code, stdout, stderr } = await command(t, home, ["events", "mute", ...args]);
    return { code, said: flat(stdout + stderr) };
  };
  t.match(await mute("tool", "codex", "--for", "8h"), {
    code: 0,
    said: /events of tool codex are not sent until/,
  });
  t.match(await mute("key", "a1b2", "--for", "2d"), { code: 0, said: "--off" });
  t.same(
    events.mutes().map(({ subject }) => subject),
    ["tool codex", "key …a1b2"],
  );
  t.match((await command(t, home, ["events"])).stdout, /muted until .*: tool codex/);
  t.match(await mute("tool", "codex", "--off"), { code: 0, said: "events of tool codex are sent again" });
  t.equal(events.mutes().length, 1);
  for (const [args, said] of [
    [["tool", "codex"], "say how long"],
    [["tool", "codex", "--for", "soon"], "such as 8h"],
    [["tool", "codex", "--for", "0"], "at most 31 days"],
    [["tool", "codex", "--for", "32d"], "at most 31 days"],
    [["tool", "codex", "--for", "1h", "--off"], "exclude each other"],
  ] as const)
    t.match(await mute(...args), { code: 2, said });
});
