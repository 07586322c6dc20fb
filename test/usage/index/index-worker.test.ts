import { once } from "node:events";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import t, { type Test } from "tap";
import type { Answer } from "../../../src/usage/index/index-worker.ts";
import type { Asked, Request } from "../../../src/usage/index/request-queue.ts";
import { makeIndex } from "../../doubles/journal.ts";
import { record } from "../../doubles/records.ts";
import { until } from "../../doubles/until.ts";
import { newFolder } from "../journal/journal-under-test.ts";

const THREAD = new URL("../../../src/usage/index/index-worker.js", import.meta.url);

function ask(number: number, id: string): Asked {
  return { kind: "ask", number, name: "record", values: [id] };
}

/** Starts the thread with requests that have all arrived before it does the first one. */
function startThread(t: Test, requests: readonly Request[]) {
  const state = newFolder(t);
  const file = makeIndex(state, [record(1)]);
  const workerData = { file, folder: join(state, "usage"), stamp: null };
  const worker = new Worker(THREAD, { workerData, execArgv: [], env: {} });
  const answers: Answer[] = [];
  worker.on("message", (answer: Answer) => answers.push(answer));
  for (const request of requests) worker.postMessage(request);
  const exited = once(worker, "exit");
  t.teardown(async () => {
    worker.postMessage({ kind: "stop" } satisfies Request);
    await exited;
  });
  /** Such as "done 1". */
  const said = () =>
    answers.map((answer) => `${answer.kind}${"number" in answer ? ` ${answer.number}` : ""}`);
  return { worker, said, exited };
}

t.test("who waits for the index to catch up is not behind the questions of pages", async (t) => {
  const requests = [ask(1, "a"), ask(2, "b"), { kind: "catch-up", number: 3 } as const, ask(4, "c")];
  const { said } = startThread(t, requests);
  await until("all are answered", () => said().length === 4);
  t.same(said(), ["done 3", "answer 1", "answer 2", "answer 4"]);
});

t.test("those who wait for the same run get one, whatever was asked in between", async (t) => {
  const { said } = startThread(t, [
    { kind: "rebuild", number: 1 },
    { kind: "catch-up", number: 2 },
    { kind: "rebuild", number: 3 },
    { kind: "catch-up", number: 4 },
  ]);
  await until("all are done", () => said().length === 4);
  t.same(said(), ["done 1", "done 3", "done 2", "done 4"]);
});

t.test("a question that was canceled before it began is not answered", async (t) => {
  const { said } = startThread(t, [ask(1, "a"), ask(2, "b"), { kind: "cancel", number: 1 }]);
  await until("the other one is", () => said().includes("answer 2"));
  t.same(said(), ["answer 2"]);
});

t.test("a question that fails does not end the thread", async (t) => {
  const wrong = { ...ask(1, "a"), name: "no such question" } as unknown as Asked;
  const { said } = startThread(t, [wrong, ask(2, "b")]);
  await until("both are answered", () => said().length === 2);
  t.same(said(), ["failed 1", "answer 2"]);
});

t.test("a stop does not wait for questions", async (t) => {
  const { said, exited } = startThread(t, [ask(1, "a"), ask(2, "b"), { kind: "stop" }]);
  await exited;
  t.same(said(), ["closed"]);
});
