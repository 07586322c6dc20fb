import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { CANDIDATE_KINDS } from "./candidates.ts";
import { measureRequests, measureStreams, warmUp } from "./measures.ts";
import { FULL, QUICK } from "./plan.ts";
import { Processes } from "./processes.ts";
import { type Running, Session } from "./session.ts";
import { spreadOf } from "./statistics.ts";

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string", multiple: true, default: [] },
  },
});
const only = values.only.length > 0 ? values.only : ["http-proxy-3", "keybearer"];
const plan = values.quick ? QUICK : FULL;
const folder = mkdtempSync(join(tmpdir(), "kb-"));
const processes = new Processes(folder);
const began = performance.now();
const log = (text: string) => {
  process.stderr.write(`${((performance.now() - began) / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
};

function range(values: readonly number[], digits: number): string {
  const spread = spreadOf(values);
  if (spread === null) return "";
  return `${spread.median.toFixed(digits)} (${spread.min.toFixed(digits)} to ${spread.max.toFixed(digits)})`;
}

try {
  const session = await Session.open(processes, folder);
  const candidates: Running[] = [];
  for (const kind of CANDIDATE_KINDS)
    if (only.includes(kind.name)) candidates.push(await session.start(kind));
  log("warming up");
  await warmUp(session, candidates, plan);
  for (const { candidate, slice, cpuMicroseconds, failed } of await measureRequests(
    session,
    candidates,
    plan,
    log,
  ))
    process.stdout.write(
      `${String(slice.promptKb).padStart(4)} KB  ${candidate.padEnd(14)} ${range(cpuMicroseconds, 0)} us CPU per request, ${failed} failed\n`,
    );
  for (const series of await measureStreams(session, candidates, plan, log))
    process.stdout.write(
      `${String(series.slice.clients).padStart(4)} clients, ${series.slice.paceMs} ms  ${series.candidate.padEnd(14)} ${range(series.cpuMilliseconds, 1)} ms CPU per stream; late p50 ${range(series.lateP50Ms, 2)} p99 ${range(series.lateP99Ms, 2)} ms, ${series.failed} failed\n`,
    );
} finally {
  processes.killAll();
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
}
process.exit();
