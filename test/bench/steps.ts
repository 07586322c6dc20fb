import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Plugin } from "esbuild";
import { type Candidate, keybearerAt, PROXIES } from "./candidates.ts";
import { measureRequests, measureStreams, type Run, warmUp } from "./measures.ts";
import type { Plan } from "./plan.ts";
import { BENCH_FOLDER, PROJECT_FOLDER } from "./processes.ts";
import { Results, spreadOf } from "./results.ts";
import type { Running, Session } from "./session.ts";

/*
 * What each step of a request costs. keybearer is built with every step off, and again with one of them on. A step is off where
 * a module of test/bench/steps/ stands in for one of src/. The product itself knows nothing of this.
 */

interface Step {
  readonly name: string;
  /** The modules of src/ in which it happens. */
  readonly modules: readonly string[];
}

const STEPS: readonly Step[] = [
  { name: "journal", modules: ["usage/journal/journal.ts"] },
  // It needs the lines of the journal.
  { name: "journal and index", modules: ["usage/journal/journal.ts", "usage/index/indexer.ts"] },
  { name: "metering of the answer", modules: ["metering/meter.ts"] },
  { name: "limits", modules: ["limits/limiter.ts"] },
  { name: "fields of the request, prices", modules: ["metering/request.ts", "metering/prices.ts"] },
  { name: "search for the key", modules: ["core/secret.ts"] },
  { name: "timeouts", modules: ["proxy/deadline.ts"] },
];

const PLAN: Plan = {
  warmUpRequests: 4000,
  rounds: 5,
  requests: [{ promptKb: 1, connections: 16, reconnect: false, requests: 1500 }],
  latency: [],
  streamRounds: 3,
  streams: [{ protocol: "chat", clients: 32, streamsPerClient: 1, paceMs: 8 }],
  delayRounds: 0,
  startRounds: 0,
  memoryRequests: 0,
  usageRecords: 0,
};

const BARE = "http-proxy-3";
const ALL_OFF = "every step off";
/** As keybearerAt() names them. */
const FLOOR = `keybearer, ${ALL_OFF}`;

/** Measures each step, and returns a table. */
export async function measureSteps(session: Session): Promise<string> {
  const modules = STEPS.flatMap((step) => step.modules);
  const builds = [{ name: ALL_OFF, modules: [] }, ...STEPS, { name: "every step on", modules }];
  const wanted: Candidate[] = PROXIES.filter(({ name }) => name === BARE);
  for (const [index, { name, modules: on }] of builds.entries()) {
    session.log(`building: ${name}`);
    const off = modules.filter((module) => !on.includes(module));
    wanted.push(keybearerAt(name, await buildWithout(off, String(index))));
  }
  const candidates: Running[] = [];
  for (const candidate of wanted) candidates.push(await session.start(candidate));
  const run: Run = { session, candidates, plan: PLAN, results: new Results() };
  for (const candidate of candidates) await warmUp(run, candidate);
  await measureRequests(run);
  await measureStreams(run);
  for (const { child } of candidates) await child.stop();
  return tableOf(run);
}

/** Returns the program's file. */
async function buildWithout(modules: readonly string[], name: string): Promise<string> {
  const folder = join(BENCH_FOLDER, ".built", "steps", name);
  const { buildProgram } = await import(pathToFileURL(join(PROJECT_FOLDER, "src", "build-program.mjs")).href);
  await buildProgram(folder, [replaceModules(modules)]);
  return join(folder, "cli", "main.js");
}

function replaceModules(modules: readonly string[]): Plugin {
  const standIns = new Map(
    modules.map((module) => [join(PROJECT_FOLDER, "src", module), standInFor(module)] as const),
  );
  return {
    name: "steps",
    setup({ onResolve }) {
      onResolve({ filter: /\.ts$/ }, ({ path, resolveDir, importer }) => {
        const standIn = standIns.get(resolve(resolveDir, path));
        // A module that stands in for another may use that one.
        return standIn === undefined || importer === standIn ? undefined : { path: standIn };
      });
    },
  };
}

function standInFor(module: string): string {
  return join(BENCH_FOLDER, "steps", module.split("/").at(-1) ?? "");
}

function tableOf({ candidates, results }: Run): string {
  const measures = results
    .all()
    .filter(({ candidate, measure }) => candidate === BARE && /^CPU/.test(measure));
  const lines: string[] = [];
  for (const { measure } of measures) {
    if (measure.endsWith("main thread")) continue;
    lines.push(`${measure}: main thread and others, median of the rounds; over "${ALL_OFF}"`);
    for (const { name } of candidates) lines.push(rowOf(results, measure, name));
    lines.push("");
  }
  return lines.join("\n");
}

function rowOf(results: Results, measure: string, name: string): string {
  const { main, others } = medians(results, measure, name);
  const floor = medians(results, measure, FLOOR);
  const isStep = name !== BARE && name !== FLOOR;
  const over = isStep ? `  +${(main - floor.main).toFixed(1)}  +${(others - floor.others).toFixed(1)}` : "";
  return `  ${name.padEnd(44)}${main.toFixed(1).padStart(9)}${others.toFixed(1).padStart(9)}${over}`;
}

function medians(results: Results, measure: string, name: string) {
  const main = spreadOf(results.rounds(`${measure}, main thread`, name))?.median ?? Number.NaN;
  const all = spreadOf(results.rounds(measure, name))?.median ?? Number.NaN;
  return { main, others: all - main };
}
