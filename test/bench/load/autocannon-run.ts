import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { percentile } from "../report/statistics.ts";
import type { Load, Loaded } from "./load.ts";

/*
 * One load by autocannon. Its own histogram knows whole milliseconds only, so that every answer is timed here.
 *   node autocannon-run.js <load as JSON, in a file>
 */

interface Run {
  on(name: "response", listener: (client: unknown, status: number, bytes: number, ms: number) => void): void;
  then(done: (result: { errors: number; non2xx: number; duration: number }) => void): void;
}

const load = JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")) as Load;
const autocannon = createRequire(import.meta.url)("autocannon") as (options: object) => Run;
const times: number[] = [];
const run = autocannon({
  url: load.way.url,
  method: "POST",
  headers: { "content-type": "application/json", ...load.way.headers },
  body: load.body,
  connections: load.connections,
  duration: load.seconds,
});
run.on("response", (_client, _status, _bytes, ms) => void times.push(ms));
run.then(({ errors, non2xx, duration }) => {
  const result: Loaded = {
    rps: times.length / duration,
    requests: times.length,
    p50Ms: percentile(times, 0.5),
    p99Ms: percentile(times, 0.99),
    errors: errors + non2xx,
  };
  process.stdout.write(`${JSON.stringify(result)}\n`);
});
