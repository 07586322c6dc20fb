import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import type { Way } from "../candidates/candidate.ts";
import { percentile } from "../report/statistics.ts";

/*
 * Reads many streams at once and tells how late each event came: every one carries the time at which the upstream wrote
 * it, on the clock that all processes of the machine share.
 *   node read-streams.js <what to read as JSON, in a file>
 */

export interface StreamsWish {
  readonly way: Way;
  readonly body: string;
  readonly streams: number;
  /** Between the starts of two streams, so that they do not beat in time. */
  readonly apartMs: number;
}

export interface StreamsRead {
  readonly firstByteP50Ms: number;
  readonly firstByteP99Ms: number;
  readonly delayP50Ms: number;
  readonly delayP99Ms: number;
  /**
   * Of the events written while every stream was open, so without the queue of streams being opened, which decides on
   * the 99th of 100 of all events where opening one takes longest; null where the first had ended before the last began.
   */
  readonly allOpenP99Ms: number | null;
  readonly events: number;
  /** Streams that broke, were refused or did not end with their last word. */
  readonly broken: number;
}

interface Times {
  readonly firstBytes: number[];
  readonly delays: number[];
  /** When each of those events was written; when the last stream began to arrive, and the first had ended. */
  readonly written: bigint[];
  lastBegan: bigint;
  firstEnded: bigint | null;
  broken: number;
}

const STAMP = /t=(\d+) /g;
const LONGEST_MS = 120_000;

function readOne({ way, body }: StreamsWish, agent: Agent, times: Times): Promise<void> {
  return new Promise((resolve) => {
    const began = process.hrtime.bigint();
    const broken = () => {
      times.broken += 1;
      resolve();
    };
    const headers = { "content-type": "application/json", ...way.headers, "content-length": body.length };
    const req = request(way.url, { method: "POST", headers, agent, timeout: LONGEST_MS }, (res) => {
      let last = "";
      let first = true;
      res.on("data", (chunk: Buffer) => {
        const now = process.hrtime.bigint();
        if (first) {
          times.firstBytes.push(Number(now - began) / 1e6);
          times.lastBegan = now;
        }
        first = false;
        const text = last + chunk.toString("latin1");
        let end = 0;
        for (const match of text.matchAll(STAMP)) {
          const written = BigInt(match[1] ?? 0);
          times.written.push(written);
          times.delays.push(Number(now - written) / 1e6);
          end = match.index + match[0].length;
        }
        // What may be the beginning of a stamp that was cut, or of the last word.
        last = text.slice(Math.max(end, text.length - 40));
      });
      res.once("end", () => {
        times.firstEnded ??= process.hrtime.bigint();
        if (res.statusCode === 200 && last.includes("[DONE]")) resolve();
        else broken();
      });
      res.once("error", broken);
    });
    req.once("error", broken);
    req.once("timeout", () => req.destroy(new Error("nothing came")));
    req.end(body);
  });
}

async function readAll(wish: StreamsWish): Promise<StreamsRead> {
  const agent = new Agent({ keepAlive: true });
  const times: Times = {
    ...{ firstBytes: [], delays: [], written: [] },
    ...{ lastBegan: 0n, firstEnded: null, broken: 0 },
  };
  const all: Promise<void>[] = [];
  for (let started = 0; started < wish.streams; started += 1) {
    all.push(readOne(wish, agent, times));
    if (wish.apartMs > 0) await new Promise((resolve) => setTimeout(resolve, wish.apartMs));
  }
  await Promise.all(all);
  agent.destroy();
  const allOpen = whileAllOpen(times);
  return {
    firstByteP50Ms: percentile(times.firstBytes, 0.5),
    firstByteP99Ms: percentile(times.firstBytes, 0.99),
    delayP50Ms: percentile(times.delays, 0.5),
    delayP99Ms: percentile(times.delays, 0.99),
    allOpenP99Ms: allOpen.length === 0 ? null : percentile(allOpen, 0.99),
    events: times.delays.length,
    broken: times.broken,
  };
}

function whileAllOpen({ delays, written, lastBegan, firstEnded }: Times): number[] {
  return delays.filter((_, at) => {
    const when = written[at] ?? 0n;
    return when > lastBegan && (firstEnded === null || when < firstEnded);
  });
}

const wish = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as StreamsWish;
process.stdout.write(`${JSON.stringify(await readAll(wish))}\n`);
