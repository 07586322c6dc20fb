import { once } from "node:events";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import t, { type Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import { newHome, type Running, saveConfig, start, startServing } from "../doubles/command.ts";
import { canaryKey, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { repeats } from "../doubles/effort.ts";
import { createRandom } from "../doubles/random.ts";
import { type Arrival, startRecordingGateway } from "../doubles/recording-gateway.ts";
import { until } from "../doubles/until.ts";
import { faultsIn, recordsIn } from "../doubles/usage-file.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

/** More of it: KEYBEARER_KILL_ROUNDS=200 KEYBEARER_KILL_SEED=7 npm run tap -- test/threats/usage-kill.test.ts --timeout=900 */
const ROUNDS = repeats("KEYBEARER_KILL_ROUNDS", 3, 20);
const SEED = Number(process.env.KEYBEARER_KILL_SEED ?? 1);
const AT_ONCE = 20;
/** On the marker of a client that leaves: perhaps after the last word, before the tokens are reported. */
const HASTY = "-hasty";

interface Scene {
  readonly home: string;
  readonly folder: string;
  readonly token: string;
}

async function scene(t: Test, baseUrl: string): Promise<Scene> {
  const home = await newHome(t);
  const { token, hash } = freshToken();
  await saveConfig(
    home,
    `listen: localhost:0\ngateway: ${baseUrl}\ntools: { codex: { key: ${canaryKey()}, token: "${hash}" } }\n`,
  );
  return { home, folder: join(home, "state", "usage"), token };
}

/** The record says which request it is by its model, or where there is none by its path. */
const markerOf = ({ model, endpoint }: UsageRecord): string => model ?? endpoint.split("/").at(-1) ?? "";

const isMarker = (text: string): boolean => text.startsWith(`m-${SEED}-`);

type Ask = (marker: string) => { readonly path: string; readonly body: object | null };

/** As large as what agents send. */
const LARGE = [{ role: "user", content: "a prompt of an agent ".repeat(10_000) }];

const ASKS: readonly Ask[] = [
  (model) => ({ path: "/v1/chat/completions", body: { model, stream: true, messages: [] } }),
  (model) => ({ path: "/v1/chat/completions", body: { model, stream: true, messages: LARGE } }),
  (model) => ({ path: "/v1/messages", body: { model, stream: true, messages: LARGE } }),
  (model) => ({ path: "/v1/messages", body: { messages: [], stream: true, model } }),
  (model) => ({ path: "/v1/responses", body: { stream: true, input: "hello", model } }),
  (model) => ({ path: `/v1beta/models/${model}:streamGenerateContent?alt=sse`, body: { contents: [] } }),
  (model) => ({ path: "/v1/embeddings", body: { input: "hello", model } }),
  // These share one rollup, whose sums must hold over all the rounds.
  (marker) => ({ path: `/v1/responses/${marker}`, body: null }),
];

/** Sends one request and reads its answer; resolves whatever becomes of it. */
function ask(port: number, agent: Agent, token: string, marker: string, one: Ask, leaveAfter: number | null) {
  const { path, body } = one(marker);
  /** Whether the whole answer came. */
  return new Promise<boolean>((resolve) => {
    let whole = false;
    const asking = request({
      host: "127.0.0.1",
      port,
      agent,
      path,
      method: body === null ? "GET" : "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json", "x-marker": marker },
    });
    const leaving = leaveAfter === null ? undefined : setTimeout(() => asking.destroy(), leaveAfter);
    asking.on("response", (answer) => {
      answer.on("error", () => {}).resume();
      answer.once("end", () => {
        whole = answer.complete;
      });
    });
    asking.on("error", () => {});
    asking.once("close", () => {
      clearTimeout(leaving);
      resolve(whole);
    });
    asking.end(body === null ? undefined : JSON.stringify(body));
  });
}

/** Everything that must be so after a death, whenever it came. */
function holds(
  t: Test,
  folder: string,
  arrivals: readonly Arrival[],
  before: readonly UsageRecord[],
  state: "dead" | "dead at the start" | "alive" | "ended" = "dead",
): UsageRecord[] {
  const records = recordsIn(folder);
  // A client that left before its body was read named no request, and nothing was sent for it.
  const known = records.filter((record) => isMarker(markerOf(record)));
  t.ok(
    records.every(
      (record) => isMarker(markerOf(record)) || (record.status === null && record.bytes_in === 0),
    ),
    "what names no request was not sent",
  );
  const byMarker = grouped(known);
  const wrong = arrivals.filter(({ marker }) => byMarker.get(marker)?.length !== 1);
  t.strictSame(wrong, [], `each of the ${arrivals.length} requests at the gateway has one record`);
  t.equal(byMarker.size, known.length, "and no other request has two");
  t.equal(new Set(records.map(({ id }) => id)).size, records.length, "no id is there twice");
  t.strictSame(faultsIn(folder), [], "its index is sound, and the rollups are the sums of the records");

  const byId = new Map(records.map((record) => [record.id, record]));
  const changed = before.filter((record) => {
    const now = JSON.stringify(byId.get(record.id));
    const same = now === JSON.stringify(record);
    if (record.end !== null || (same && state === "dead at the start")) return !same;
    return now !== JSON.stringify({ ...record, end: "interrupted" });
  });
  t.strictSame(
    changed,
    [],
    `the ${before.length} records of before are as they were, the unfinished interrupted`,
  );
  const byGateway = new Map(arrivals.map((arrival) => [arrival.marker, arrival]));
  const misread = records.filter((record) => {
    if (record.end !== "complete" || record.method !== "POST" || markerOf(record).endsWith(HASTY))
      return false;
    const { input = -1, output = -1 } = byGateway.get(markerOf(record)) ?? {};
    const wanted = record.endpoint === "/v1/embeddings" ? 0 : output;
    return (
      record.input_tokens !== input || record.output_tokens !== wanted || record.tokens_from !== "reported"
    );
  });
  t.strictSame(misread, [], "what is complete has the gateway's own numbers");
  return records;
}

function haveEnded(folder: string): boolean {
  const ends = new Set(recordsIn(folder).map(({ end }) => end));
  return ends.has("complete") && ends.has("client-left");
}

function grouped(records: readonly UsageRecord[]): Map<string, UsageRecord[]> {
  const groups = new Map<string, UsageRecord[]>();
  for (const record of records) {
    const marker = markerOf(record);
    groups.set(marker, [...(groups.get(marker) ?? []), record]);
  }
  return groups;
}

async function kill(running: Running): Promise<void> {
  running.child.kill("SIGKILL");
  await running.ended;
}

t.test(
  "LOG-01 after a kill at any moment, every request that reached the gateway has one record",
  async (t) => {
    const random = createRandom(SEED);
    const gateway = await startRecordingGateway(t, {
      pause: () => wait(2 + random() * 60),
      events: () => 1 + Math.floor(random() * 20),
    });
    const { home, folder, token } = await scene(t, `${gateway.origin}/v1`);
    let number = 0;
    let records: UsageRecord[] = [];

    for (let round = 1; round <= ROUNDS; round += 1) {
      const running = start(t, home, ["run"]);
      if (round % 3 === 0) {
        // While it starts: the log is read, and what was in flight is closed.
        await wait(random() * 700);
        await kill(running);
        records = holds(t, folder, gateway.arrivals, records, "dead at the start");
        continue;
      }
      const [, port] = await running.says(/serves http:\/\/localhost:(\d+)/);
      const agent = new Agent({ keepAlive: true });
      let dying = false;
      /** By a request whose answer came whole: the request that was sent after that. */
      const next = new Map<string, string>();
      const lanes = Array.from({ length: AT_ONCE }, async () => {
        let whole: string | null = null;
        while (!dying) {
          number += 1;
          const one = ASKS[Math.floor(random() * ASKS.length)] as Ask;
          const leaveAfter = random() < 0.1 ? random() * 200 : null;
          const marker = `m-${SEED}-${number}${leaveAfter === null ? "" : HASTY}`;
          if (whole !== null) next.set(whole, marker);
          whole = (await ask(Number(port), agent, token, marker, one, leaveAfter)) ? marker : null;
        }
      });
      // Any moment, but not before some came through: how many that is must not depend on how busy this machine is.
      const enough = gateway.arrivals.length + 20 + Math.floor(random() * 80);
      await until("enough of them came", () => gateway.arrivals.length >= enough);
      await wait(random() * 60);
      if (round === 1) await until("some came to their end, and some have left", () => haveEnded(folder));
      dying = true;
      await kill(running);
      await Promise.all(lanes);
      agent.destroy();
      records = holds(t, folder, gateway.arrivals, records);
      const ends = new Map(records.map((record) => [markerOf(record), record.end]));
      // The journal is written in the order of the requests, so what ended before the next one was sent on is complete.
      const sent = new Set(gateway.arrivals.map(({ marker }) => marker));
      const early = [...next].filter(([, following]) => sent.has(following));
      const unfinished = early.filter(([marker]) => ends.get(marker) === null);
      t.strictSame(unfinished, [], `the ${early.length} that ended before another was sent on are complete`);
    }

    const last = await startUnderTest(t, null, { home });
    records = holds(t, folder, gateway.arrivals, records, "alive");
    t.equal(records.filter(({ end }) => end === null).length, 0, "nothing is left unfinished");
    await last.daemon.stop();
    records = holds(t, folder, gateway.arrivals, records, "ended");
    const ends = new Set(records.map(({ end }) => end));
    for (const end of ["complete", "client-left", "interrupted"] as const)
      t.ok(ends.has(end), `some are ${end}`);
    t.comment(
      `${ROUNDS} rounds: ${gateway.arrivals.length} requests at the gateway, ${records.length} records`,
    );
  },
);

t.test("LOG-02 a kill before a byte of the request is sent leaves an interrupted record", async (t) => {
  // TLS is never answered, so that the request itself cannot be sent.
  const heard: Buffer[] = [];
  const gateway = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", (chunk) => void heard.push(chunk));
  });
  gateway.listen(0, "127.0.0.1");
  await once(gateway, "listening");
  t.teardown(() => gateway.close());
  const address = gateway.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const { home, folder, token } = await scene(t, `https://127.0.0.1:${port}/v1`);

  const running = await startServing(t, home);
  const asked = fetch(`${running.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify({ model: "never-sent", messages: [{ role: "user", content: "hello" }] }),
  }).catch(() => null);
  await until("TLS is asked for", () => heard.length > 0);
  await kill(running);
  await asked;
  const [open] = recordsIn(folder);
  t.match(open, { model: "never-sent", end: null, status: null, tool: "codex", bytes_in: 0 });
  t.notOk(Buffer.concat(heard).includes("never-sent"), "the gateway got nothing");

  for (let n = 0; n < 2; n += 1) {
    const again = await startUnderTest(t, null, { home });
    const records = recordsIn(folder);
    t.strictSame(records, [{ ...open, end: "interrupted" }], "interrupted, once, and otherwise as it was");
    t.match(records[0], { cost_microdollars: null, input_tokens: null, ended_at: null });
    t.strictSame(faultsIn(folder), []);
    await again.daemon.stop();
  }
});

t.test(
  "LOG-03 a kill between the gateway's last byte and the record's completion leaves one record",
  async (t) => {
    let held: Promise<void> | null = null;
    const gateway = await startRecordingGateway(t, { pause: () => held ?? wait(5), events: () => 3 });
    const { home, folder, token } = await scene(t, `${gateway.origin}/v1`);
    const running = await startServing(t, home);
    const ask = async (marker: string) => {
      const answer = await fetch(`${running.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "x-marker": marker },
        body: JSON.stringify({ model: marker, stream: true, messages: [] }),
      });
      return answer;
    };
    t.match(await (await ask("before")).text(), /\[DONE\]/);
    await until("it is complete", () => recordsIn(folder)[0]?.end === "complete");

    let letGo = () => {};
    held = new Promise((resolve) => {
      letGo = resolve;
    });
    const asked = ask("in-between");
    await until("its opening is in the log", () => recordsIn(folder).length === 2);
    // With its folder away the log cannot be written, so that the completion has to wait. A file in its place, because the
    // daemon makes the folder again for its other files.
    const state = join(home, "state");
    renameSync(state, `${state}-away`);
    writeFileSync(state, "");
    await running.logs(/the usage log cannot be written/);
    letGo();
    t.match(await (await asked).text(), /\[DONE\]/, "the client has all of it");
    await kill(running);
    rmSync(state);
    renameSync(`${state}-away`, state);

    t.strictSame(
      recordsIn(folder).map(({ model, end }) => ({ model, end })),
      [
        { model: "before", end: "complete" },
        { model: "in-between", end: null },
      ],
    );
    const again = await startUnderTest(t, null, { home });
    t.strictSame(
      recordsIn(folder).map(({ model, end }) => ({ model, end })),
      [
        { model: "before", end: "complete" },
        { model: "in-between", end: "interrupted" },
      ],
    );
    t.equal(gateway.arrivals.length, 2);
    t.strictSame(faultsIn(folder), []);
    await again.daemon.stop();
  },
);

t.test(
  "LOG-04 a stop during fifty streams leaves fifty finished records, and the exit code is 0",
  async (t) => {
    let short = 0;
    const gateway = await startRecordingGateway(t, {
      pause: () => wait(100),
      // Half of them end soon, the others not within the test.
      events: () => {
        short += 1;
        return short % 2 === 0 ? 20 : 3000;
      },
    });
    const { home, folder, token } = await scene(t, `${gateway.origin}/v1`);
    const running = await startServing(t, home);
    let ended = 0;
    const begin = async (n: number) => {
      const answer = await fetch(`${running.url}/v1/messages`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "x-marker": `s-${n}` },
        body: JSON.stringify({ model: `s-${n}`, stream: true, messages: [] }),
      });
      const text = answer.text().then((all) => {
        ended += 1;
        return all;
      });
      return { text: text.catch(() => null) };
    };
    const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => begin(n)));
    running.child.kill("SIGTERM");
    await running.logs(/SIGTERM: stopping/);
    const letIn = () =>
      fetch(`${running.url}/healthz`).then(
        () => true,
        () => false,
      );
    t.notOk(await letIn(), "no other request is let in");
    await until("the short ones finish", () => ended === 25);
    running.child.kill("SIGTERM");
    const { code } = await running.ended;
    t.equal(code, 0);
    const finished = (await Promise.all(answers.map(({ text }) => text))).map(
      (text) => text?.endsWith('"message_stop"}\n\n') ?? false,
    );
    const records = recordsIn(folder);
    t.equal(records.length, 50);
    for (const { model, end, status, output_tokens, ended_at } of records) {
      const done = finished[Number(model?.slice(2))] === true;
      t.match({ end, status }, { end: done ? "complete" : "interrupted", status: 200 }, `${model}`);
      t.equal(output_tokens, done ? 20 : null, "known only where it was reported at the end");
      t.type(ended_at, "number");
    }
    t.equal(finished.filter(Boolean).length, 25);
    t.strictSame(faultsIn(folder), []);
  },
);
