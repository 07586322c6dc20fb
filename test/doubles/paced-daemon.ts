import type { Test } from "tap";
import { type OneTool, startWithOneTool } from "./daemon-under-test.ts";
import { movableClock } from "./movable-clock.ts";
import { type PacedGateway, startPacedGateway, WHOLE_STREAM } from "./paced-gateway.ts";
import { until } from "./until.ts";
import { faultsIn, recordsIn } from "./usage-file.ts";

export interface PacedDaemon extends OneTool {
  readonly gateway: PacedGateway;
  readonly file: string;
}

/** When a paced daemon starts, by its own clock, so that no day ends during a test. */
export const PACED_START = Date.UTC(2026, 10, 16, 12);

/** A daemon with one tool before a gateway whose streams stop in the middle. */
export async function startPacedDaemon(t: Test, home?: string): Promise<PacedDaemon> {
  const gateway = await startPacedGateway(t);
  const clock = movableClock(PACED_START);
  const one = await startWithOneTool(t, gateway.origin, home === undefined ? { clock } : { clock, home });
  return { ...one, gateway, file: one.paths.usage };
}

export function chat(
  it: PacedDaemon,
  model: string,
  stream = false,
  path = "/v1/chat/completions",
): Promise<Response> {
  return fetch(it.url + path, {
    method: "POST",
    headers: { authorization: `Bearer ${it.token}`, "content-type": "application/json" },
    body: JSON.stringify({ model, stream, messages: [] }),
  });
}

/** Streams in flight, each with its first event at the client. */
export async function startStreams(it: PacedDaemon, models: readonly string[]) {
  const answers: { readonly model: string; readonly text: Promise<string> }[] = [];
  for (const model of models) answers.push({ model, text: (await chat(it, model, true)).text() });
  return {
    /** Lets the gateway end them, and checks that every byte came. */
    async end(t: Test) {
      it.gateway.release();
      for (const { model, text } of answers) t.equal(await text, WHOLE_STREAM, `${model} came whole`);
    },
  };
}

/** How a refusal looks in each protocol while the log cannot be written. */
export async function refusesAll(t: Test, it: PacedDaemon): Promise<void> {
  const before = it.gateway.calls.length;
  const shapes = [
    ["/v1/chat/completions", { error: { code: "log-unavailable", type: "keybearer_refusal" } }],
    ["/v1/messages", { type: "error", error: { type: "api_error" } }],
    [
      "/v1beta/models/g:generateContent",
      { error: { code: 503, status: "UNAVAILABLE", details: [{ reason: "log-unavailable" }] } },
    ],
  ] as const;
  for (const [path, shape] of shapes) {
    const answer = await chat(it, "refused", false, path);
    t.equal(answer.status, 503, path);
    t.equal(answer.headers.get("x-keybearer-refusal"), "log-unavailable");
    t.match(answer.headers.get("retry-after"), /^[1-9]\d*$/);
    t.ok(answer.headers.get("x-keybearer-request-id"));
    const body = (await answer.json()) as { error: { message: string } };
    t.match(body, shape);
    t.match(body.error.message, /^keybearer: .*nothing was sent to the gateway/);
  }
  t.equal(it.gateway.calls.length, before, "no request reaches the gateway that cannot be recorded");
  const { usage } = await it.daemon.status();
  t.equal(usage.state, "unavailable");
  t.type(usage.since, "number");
  t.ok(usage.why && usage.next, `status says why (${usage.why}) and what to do (${usage.next})`);
  t.equal((await fetch(`${it.url}/healthz`)).status, 200);
}

/** It serves again by itself. */
export async function servesAgain(t: Test, it: PacedDaemon, model: string): Promise<void> {
  await until("it serves again", async () => {
    const answer = await chat(it, model);
    await answer.text();
    return answer.status === 200;
  });
  await until("nothing waits", async () => (await it.daemon.status()).usage.waiting === 0);
  t.match((await it.daemon.status()).usage, { state: "ok", since: null, why: null });
}

/** Every call that reached the gateway since has exactly one finished record. */
export async function oneRecordEach(t: Test, it: PacedDaemon, since = 0): Promise<void> {
  const models = it.gateway.calls
    .slice(since)
    .map((call) => JSON.parse(call.body().toString()).model as string);
  await until("all are finished", () => recordsIn(it.file).every(({ end }) => end !== null));
  const records = recordsIn(it.file);
  const sent = records.filter(({ end }) => end !== "refused").map(({ model }) => model);
  const missing = models.filter((model) => sent.filter((one) => one === model).length !== 1);
  t.strictSame(missing, [], `each of the ${models.length} calls has one record`);
  t.equal(new Set(records.map(({ id }) => id)).size, records.length);
  t.strictSame(faultsIn(it.file), []);
}
