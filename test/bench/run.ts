import { join } from "node:path";
import { bareNode } from "./candidates/bare-node.ts";
import { type Candidate, type Kind, startCandidate } from "./candidates/candidate.ts";
import { direct } from "./candidates/direct.ts";
import { keybearer } from "./candidates/keybearer.ts";
import { library } from "./candidates/library.ts";
import { nginx, nginxVersion } from "./candidates/nginx.ts";
import { portkey } from "./candidates/portkey.ts";
import { check } from "./checks/correctness.ts";
import { recorded } from "./checks/recorded.ts";
import { autocannon } from "./load/autocannon.ts";
import type { LoadGenerator } from "./load/load.ts";
import { wrk } from "./load/wrk.ts";
import { measureDownloads } from "./measures/downloads.ts";
import { measureFlatMemory } from "./measures/flat-memory.ts";
import { measureHouse } from "./measures/house.ts";
import { measureIdle } from "./measures/idle.ts";
import { measureReload } from "./measures/reload.ts";
import { type LoadSeries, measureRequests, warmUp } from "./measures/requests.ts";
import { measureStarts } from "./measures/starts.ts";
import { measureStreams } from "./measures/streams.ts";
import type { Plan } from "./plan.ts";
import type { Scene } from "./processes/scene.ts";
import { describeMachine } from "./report/machine.ts";
import type { Contender, Measured, Setting } from "./report/result.ts";
import { startUpstreams, type Upstreams } from "./upstream/upstreams.ts";

export interface RunMeans {
  readonly scene: Scene;
  readonly plan: Plan;
  readonly quick: boolean;
  /** Where a program lies; null: it is not installed. */
  readonly program: (name: string) => string | null;
  readonly date: string;
}

/** One whole run: everybody is started, looked at, and measured in turn. */
export async function run({ scene, plan, quick, program, date }: RunMeans): Promise<[Setting, Measured]> {
  const machine = describeMachine();
  const nginxFile = program("nginx");
  const wrkFile = program("wrk");
  const generator = wrkFile === null ? autocannon() : wrk(wrkFile);
  const upstreams = await startUpstreams(scene, nginxFile);
  const all = [
    direct(),
    nginx(nginxFile),
    library("http-proxy-3"),
    library("httpxy"),
    keybearer(),
    portkey(),
  ];
  const kinds = all.filter((kind) => kind.version() !== null);
  const { candidates, contenders } = await admit(scene, neededFor(kinds, plan), upstreams, plan);
  const missing = all.filter((kind) => kind.version() === null);

  await warmUp(scene, generator, candidates, plan);
  const loads = await measureRequests(scene, generator, candidates, plan);
  const streams = await measureStreams(scene, candidates, plan);
  const downloads = await measureDownloads(scene, candidates, plan);
  provePromises(scene, candidates, loads);
  for (const { child } of candidates) if (child !== null) await scene.children.end(child);

  const fresh = [bareNode(), ...neededFor(kinds, plan)];
  const measured = {
    ...{ loads, streams, downloads },
    starts: await measureStarts(scene, fresh, upstreams, plan.startRounds),
    idle: await measureIdle(scene, fresh, upstreams, plan),
    ...(await onKeybearer(scene, generator, kinds, upstreams, plan)),
  };
  const setting: Setting = {
    ...{ machine, date, quick, contenders },
    rounds: plan.rounds,
    secondsEach: plan.seconds,
    loadGenerator: generator.name,
    upstream: nginxFile === null ? upstreams.kind : `${upstreams.kind} ${nginxVersion(nginxFile)}`,
    missing: missing.map(({ name, missing: why }) => ({ name, why })),
  };
  return [setting, measured];
}

async function onKeybearer(
  scene: Scene,
  generator: LoadGenerator,
  kinds: readonly Kind[],
  upstreams: Upstreams,
  plan: Plan,
): Promise<Pick<Measured, "flat" | "reload" | "house">> {
  const compared = kinds.filter(({ name }) => name === "keybearer" || name === "http-proxy-3");
  return {
    flat: await measureFlatMemory(scene, generator, compared, upstreams, plan.flatRequests),
    reload:
      plan.reloadRounds === 0
        ? null
        : await measureReload(scene, upstreams, plan.toolsInReload, plan.reloadRounds),
    house: await measureHouse(scene, plan),
  };
}

/** A quick run does not start whom it does not ask. */
function neededFor(kinds: readonly Kind[], { loads, streams }: Plan): Kind[] {
  const wishes = [...loads, ...streams];
  return kinds.filter(({ name }) => wishes.some(({ only }) => only === undefined || only.includes(name)));
}

/** Whoever answers wrongly is not measured: the run ends, since its numbers would compare different work. */
async function admit(
  scene: Scene,
  kinds: readonly Kind[],
  upstreams: Upstreams,
  { downloadRounds }: Plan,
): Promise<{ candidates: Candidate[]; contenders: Contender[] }> {
  const candidates: Candidate[] = [];
  const contenders: Contender[] = [];
  for (const kind of kinds) {
    scene.say(`${kind.name}: starting, and checking its answers`);
    const candidate = await startCandidate(kind, scene, upstreams);
    const { faults, bodiesUnchanged } = await check(scene, candidate, downloadRounds > 0);
    if (faults.length > 0) throw new Error(`${kind.name} answers wrongly: ${faults.join("; ")}`);
    candidates.push(candidate);
    const { name, title, version } = candidate;
    contenders.push({ name, title, version, bodiesUnchanged });
  }
  return { candidates, contenders };
}

/** No speed counts that was bought with a missing record. */
function provePromises(scene: Scene, candidates: readonly Candidate[], loads: readonly LoadSeries[]): void {
  const ours = candidates.find(({ name }) => name === "keybearer");
  if (ours === undefined) return;
  const port = new URL(ours.ways.plain.url).port;
  const sent = loads
    .filter(({ candidate }) => candidate === "keybearer")
    .reduce((sum, { rounds }) => sum + rounds.reduce((all, { requests }) => all + requests, 0), 0);
  const { records, metered } = recorded(join(scene.folder, `kb-${port}`, "state", "usage.db"));
  scene.say(
    `keybearer recorded ${records} requests, ${metered} with tokens and price, of at least ${sent} sent`,
  );
  if (records < sent || metered < sent)
    throw new Error(`keybearer recorded ${records} requests, ${metered} with a price, of at least ${sent}`);
}
