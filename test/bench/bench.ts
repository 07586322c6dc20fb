import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HELP, type Options, readOptions } from "./options.ts";
import { FULL, type Plan, QUICK } from "./plan.ts";
import { createChildren } from "./processes/children.ts";
import { installRivals } from "./processes/rivals.ts";
import { programPath, type Scene } from "./processes/scene.ts";
import { inSvg } from "./report/chart.ts";
import { inJson } from "./report/json.ts";
import { ratiosOf } from "./report/ratios.ts";
import { inWords } from "./report/table.ts";
import { run } from "./run.ts";

/*
 * keybearer with everything on, beside others, in one run.
 *   npm run bench -- --help
 */

function planOf({ quick, rounds }: Options): Plan {
  const plan = quick ? QUICK : FULL;
  return rounds === null ? plan : { ...plan, rounds, streamRounds: rounds };
}

async function bench(options: Options, scene: Scene): Promise<void> {
  const installed = installRivals(scene)
    .catch((error: Error) => error.message)
    .then((trouble) => {
      if (trouble !== null) scene.say(`they could not be installed, and are left out: ${trouble}`);
    });
  const [setting, measured] = await run({
    ...{ scene, quick: options.quick, plan: planOf(options), installed },
    program: (name) =>
      options.without.includes(name) ? null : programPath(name, process.env.PATH ?? "", existsSync),
    date: new Date().toISOString(),
  });
  const ratios = ratiosOf(measured);
  const json = inJson(setting, measured, ratios);
  if (options.chart !== null) writeFileSync(options.chart, inSvg(setting, measured));
  if (options.save !== null) writeFileSync(options.save, `${json}\n`);
  process.stdout.write(`${options.json ? json : inWords(setting, measured, ratios)}\n`);
}

/** Nothing that was started here outlives it, however it ends. */
async function inScene(work: (scene: Scene) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "kb-bench-"));
  const children = createChildren(process.env);
  const began = performance.now();
  const say = (words: string) =>
    void process.stderr.write(`${((performance.now() - began) / 1000).toFixed(0).padStart(4)} s  ${words}\n`);
  const clear = () => {
    children.endAll();
    rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
  };
  for (const [signal, number] of [
    ["SIGINT", 2],
    ["SIGTERM", 15],
    ["SIGHUP", 1],
  ] as const) {
    process.once(signal, () => {
      clear();
      process.exit(128 + number);
    });
  }
  try {
    await work({ children, folder, say });
  } finally {
    clear();
  }
}

try {
  const options = readOptions(process.argv.slice(2));
  if (options.help) process.stdout.write(HELP);
  else await inScene((scene) => bench(options, scene));
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
