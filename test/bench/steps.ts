import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Plugin } from "esbuild";
import { type Candidate, keybearerAt, PROXIES } from "./candidates.ts";
import { checkAnswers } from "./checks.ts";
import { measureRequests, measureStreams, type Run, warmUp } from "./measures.ts";
import type { Plan } from "./plan.ts";
import { BENCH_FOLDER, PROJECT_FOLDER } from "./processes.ts";
import { median, Results } from "./results.ts";
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
  // The index reads the journal, so both are on.
  { name: "journal and index", modules: ["usage/journal/journal.ts", "usage/index/indexer.ts"] },
  { name: "metering of the answer", modules: ["metering/meter.ts"] },
  { name: "limits", modules: ["limits/limiter.ts"] },
  { name: "fields of the request, prices", modules: ["metering/request.ts", "metering/prices.ts"] },
  { name: "search for the key in the answer", modules: ["core/secret.ts"] },
  { name: "timeouts", modules: ["proxy/deadline.ts"] },
];

const PLAN: Plan = {
  warmUpRequests: 4000,
  rounds: 5,
  requests: [
    { promptKb: 1, connections: 16, reconnect: false, requests: 1500 },
    { promptKb: 100, connections: 8, reconnect: false, requests: 400 },
  ],
  latency: [],
  streamRounds: 3,
  streams: [{ protocol: "chat", clients: 32, streamsPerClient: 1, paceMs: 8 }],
  delayRounds: 0,
  scrapeRounds: 0,
  watchedRounds: 0,
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
  for (const candidate of wanted) {
    const running = await session.start(candidate);
    await checkAnswers(session, running);
    candidates.push(running);
  }
  const run: Run = { session, candidates, plan: PLAN, results: new Results() };
  for (const candidate of candidates) await warmUp(run, candidate);
  await measureRequests(run);
  await measureStreams(run);
  for (const { child } of candidates) await child.stop();
  const broken = run.results.all().find(({ failed }) => failed > 0);
  if (broken !== undefined) throw new Error(`${broken.candidate} did not answer every request`);
  return tableOf(run);
}

/** Returns the program's file. */
async function buildWithout(modules: readonly string[], name: string): Promise<string> {
  // Not below test/bench: the program would take the package.json there for its own.
  const folder = join(PROJECT_FOLDER, "build", "bench-steps", name);
  const { buildProgram } = await import(pathToFileURL(join(PROJECT_FOLDER, "src", "build-program.mjs")).href);
  const unused = new Set(modules);
  await buildProgram(folder, [replaceModules(modules, unused)]);
  if (unused.size > 0) throw new Error(`nothing imports ${[...unused].join(", ")}: correct STEPS`);
  return join(folder, "cli", "main.js");
}

/** @param unused those that are replaced leave it. */
function replaceModules(modules: readonly string[], unused: Set<string>): Plugin {
  return {
    name: "steps",
    setup({ onResolve }) {
      onResolve({ filter: /\.ts$/ }, ({ path, resolveDir, importer }) => {
        const file = resolve(resolveDir, path);
        const module = modules.find((one) => file === join(PROJECT_FOLDER, "src", one));
        // A module that stands in for another may use that one.
        if (module === undefined || importer === standInFor(module)) return undefined;
        unused.delete(module);
        return { path: standInFor(module) };
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
  const lines = [
    "One step may need what another one finds out, so the rows do not add up to the last one.",
    "",
  ];
  for (const { measure } of measures) {
    if (measure.endsWith("main thread")) continue;
    lines.push(`${measure}: main thread, other threads, and both over "${ALL_OFF}"`);
    for (const { name } of candidates) lines.push(rowOf(results, measure, name));
    lines.push("");
  }
  return lines.join("\n");
}

function rowOf(results: Results, measure: string, name: string): string {
  const { main, others } = medians(results, measure, name);
  const floor = medians(results, measure, FLOOR);
  const isCompared = name !== BARE && name !== FLOOR;
  const figures = isCompared ? [main, others, main - floor.main, others - floor.others] : [main, others];
  return `  ${name.padEnd(48)}${figures.map((figure) => figure.toFixed(2).padStart(10)).join("")}`;
}

function medians(results: Results, measure: string, name: string) {
  const all = results.rounds(measure, name);
  const main = results.rounds(`${measure}, main thread`, name);
  const others = all.map((time, round) => time - (main[round] ?? Number.NaN));
  return { main: median(main), others: median(others) };
}
