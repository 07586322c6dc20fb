import { readdirSync } from "node:fs";
import t, { type Test } from "tap";
import { exportedRecords, newHome } from "../doubles/command.ts";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { heldWall } from "../doubles/limited-journey.ts";
import { chat, oneRecordEach, type PacedDaemon, startStreams } from "../doubles/paced-daemon.ts";
import { startPacedGateway } from "../doubles/paced-gateway.ts";

const DAY = 86_400_000;
const SETTINGS = ["limits: { requests: 100/month }"];

type Wall = ReturnType<typeof heldWall>;

/** A daemon in a home of its own whose wall clock the test sets. */
async function startScene(t: Test, clock: Wall, home: string): Promise<PacedDaemon> {
  const gateway = await startPacedGateway(t);
  const one = await startWithOneTool(t, gateway.origin, { home, clock, tool: SETTINGS });
  return { ...one, gateway, file: one.paths.usage };
}

async function usedRequests({ daemon }: PacedDaemon): Promise<number | null | undefined> {
  const { tools } = await daemon.status();
  return tools[0]?.limits.find(({ limit }) => limit === "requests")?.used;
}

async function ask(it: PacedDaemon, model: string): Promise<void> {
  const answer = await chat(it, model);
  await answer.text();
  if (answer.status !== 200) throw new Error(`${model}: ${answer.status}`);
}

t.test("streams that are open at midnight have one record each, and count once", async (t) => {
  const clock = heldWall(Date.UTC(2026, 10, 16, 23, 59, 50));
  const home = await newHome(t);
  const it = await startScene(t, clock, home);
  await ask(it, "before");
  const streams = await startStreams(it, ["a", "b", "c"]);
  clock.pass(20_000);
  await ask(it, "after");
  await streams.end(t);
  await oneRecordEach(t, it);
  t.strictSame(readdirSync(it.file), ["2026-11-16.jsonl", "2026-11-17.jsonl"]);
  t.equal(await usedRequests(it), 5);
  t.equal((await exportedRecords(t, home)).length, 5, "reports have them all");
  await it.daemon.stop();
  const again = await startScene(t, clock, home);
  t.equal(await usedRequests(again), 5, "a start reads the newest file, and knows as much");
});

t.test("a clock that is set a day back or ahead loses no record, and gives no request twice", async (t) => {
  const clock = heldWall(Date.UTC(2026, 10, 16, 12));
  const home = await newHome(t);
  const it = await startScene(t, clock, home);
  await ask(it, "noon");
  clock.pass(-DAY);
  await ask(it, "a-day-back");
  const streams = await startStreams(it, ["stream"]);
  clock.pass(2 * DAY);
  await ask(it, "a-day-ahead");
  await streams.end(t);
  clock.pass(-DAY);
  await ask(it, "right-again");
  await oneRecordEach(t, it);
  t.equal(await usedRequests(it), 5);
  t.equal((await exportedRecords(t, home)).length, 5);
  await it.daemon.stop();
  const again = await startScene(t, clock, home);
  t.equal(await usedRequests(again), 5, "nor does a restart");
});
