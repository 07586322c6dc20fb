/**
 * Runs keybearer against a real gateway and checks every verdict of the mirror. See README.md.
 *
 *   node build/test/real/run.js litellm|new-api|sub2api PROGRAM
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createRandom } from "../doubles/random.ts";
import type { Gateway } from "./gateway.ts";
import { Keybearer } from "./keybearer.ts";
import { startLiteLlm } from "./litellm.ts";
import { startNewApi } from "./new-api.ts";
import { type Provider, startProvider } from "./provider.ts";
import { startSub2api } from "./sub2api.ts";
import { planTraffic, sendTraffic, type TestRequest } from "./traffic.ts";
import { compare, pairsText, tableText } from "./verdicts.ts";

const STARTERS = { litellm: startLiteLlm, "new-api": startNewApi, sub2api: startSub2api } as const;
/** After a row is 30 seconds old the mirror may call it foreign. */
const SETTLED_AFTER_MS = 45_000;
/** If a gateway lists nothing new for so long, it has listed everything. LiteLLM was seen to take 11 seconds. */
const LISTED_AFTER_MS = 15_000;
const SHOWN_FAILURES = 200;

const { env } = process;
const [, , kind = "", program = ""] = process.argv;
const count = Number(env.REAL_REQUESTS ?? 2000);
const foreign = Number(env.REAL_FOREIGN ?? 37);
const rate = Number(env.REAL_RATE ?? 10);
const pairs = Number(env.REAL_PAIRS ?? 0);
const repeats = Number(env.REAL_REPEATS ?? 0);
const seed = Number(env.REAL_SEED ?? 1);
const OUR_AGENT = "real-test/1.0";
const dist = resolve(env.KEYBEARER_DIST ?? "dist");

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

async function timed(work: () => Promise<unknown>): Promise<string> {
  const begun = Date.now();
  await work();
  return `${((Date.now() - begun) / 1000).toFixed(1)} s`;
}

async function main(): Promise<boolean> {
  const start = STARTERS[kind as keyof typeof STARTERS];
  if (start === undefined || program === "") throw new Error("usage: run.js litellm|new-api|sub2api PROGRAM");
  // Short, because a unix socket is below it.
  const folder = mkdtempSync(join(tmpdir(), "kbr-"));
  const gatewayFolder = join(folder, "gateway");
  mkdirSync(gatewayFolder);
  const provider = await startProvider();
  const keybearer = new Keybearer(dist, join(folder, "home"));
  let passed = false;
  try {
    const gateway = await start({
      program: resolve(program),
      folder: gatewayFolder,
      provider: provider.origin,
    });
    try {
      passed = await exercise(gateway, provider, keybearer);
    } finally {
      await keybearer.stop();
      await gateway.stop();
    }
  } finally {
    provider.close();
    if (passed && env.REAL_KEEP === undefined) rmSync(folder, { recursive: true, force: true });
    else say(`logs and databases: ${folder}`);
  }
  return passed;
}

async function exercise(gateway: Gateway, provider: Provider, keybearer: Keybearer): Promise<boolean> {
  await keybearer.configure(gateway);
  await keybearer.start();
  // new-api's rows have whole seconds, so a row of the first second may be from before the key was held here.
  await sleep(3000);
  const { tools, failures } = gateway;
  const random = createRandom(seed);
  const traffic = planTraffic({ tools, failures, count, foreign, pairs, repeats, rate, random });
  const { requests, killAt } = traffic;
  say(`${requests.length} requests in ${Math.round(count / rate)} s, seed ${seed}`);

  const ours = {
    userAgent: OUR_AGENT,
    origin: () => keybearer.origin,
    credential: ({ tool }: TestRequest) => keybearer.tokens.get(tool.tool) ?? "",
  };
  const direct = {
    userAgent: env.REAL_THIEF_AGENT ?? OUR_AGENT,
    origin: () => gateway.origin,
    credential: ({ tool }: TestRequest) => tool.key,
  };
  let restartedAt = 0;
  const events = [
    {
      at: killAt,
      async run() {
        await keybearer.stop("SIGKILL");
        await keybearer.start();
        restartedAt = Date.now();
      },
    },
    // Rows that a later one joins, and records that are still open.
    { at: killAt + 5000, run: async () => void (await keybearer.run("mirror", "sync")) },
  ];
  await sendTraffic(requests, ours, direct, events);
  say(`sent; waiting ${SETTLED_AFTER_MS / 1000} s until every row is settled`);
  await sleep(SETTLED_AFTER_MS);
  await untilListed(gateway);

  const syncTime = await timed(() => keybearer.run("mirror", "sync"));
  const state = await keybearer.mirror();
  const result = compare({
    requests,
    records: await keybearer.records(),
    rows: keybearer.rows(),
    gatewayRows: await gateway.rows(),
    seen: provider.seen,
    alarmed: state.alarms.reduce((sum, alarm) => sum + (alarm.certain ? alarm.count : 0), 0),
    restartedAt,
  });
  say(`\n${tableText(result.table)}\n`);
  if (pairs > 0) say(`${pairsText(result.pairs)}\n`);
  for (const [name, figure] of Object.entries(result.figures)) say(`${name}: ${figure.toLocaleString("en")}`);
  say(`sync: ${syncTime}; console: ${state.state}${state.why === null ? "" : ` (${state.why})`}`);
  say(`answers: ${JSON.stringify(answersOf(requests))}`);
  const missed = result.failures;
  for (const failure of missed.slice(0, SHOWN_FAILURES)) say(`MISSED ${failure}`);
  if (missed.length > SHOWN_FAILURES) say(`… and ${missed.length - SHOWN_FAILURES} more`);
  say(missed.length === 0 ? "\nreached" : `\nmissed in ${missed.length} paths`);
  return missed.length === 0;
}

/** A busy gateway lists its last rows late. */
async function untilListed(gateway: Gateway): Promise<void> {
  let before = -1;
  for (let count = (await gateway.rows()).length; count !== before; count = (await gateway.rows()).length) {
    before = count;
    await sleep(LISTED_AFTER_MS);
  }
}

/** How many requests of each kind got which status: a gateway that refuses everything would prove nothing. */
function answersOf(requests: readonly TestRequest[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { kind, status, foreign: isForeign } of requests) {
    const name = `${isForeign ? "foreign " : ""}${kind} ${status ?? "none"}`;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}

process.exitCode = (await main()) ? 0 : 1;
