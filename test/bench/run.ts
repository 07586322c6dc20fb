import { bareNode } from "./candidates/bare-node.ts";
import { type Candidate, type Kind, startCandidate } from "./candidates/candidate.ts";
import { direct } from "./candidates/direct.ts";
import { keybearer } from "./candidates/keybearer.ts";
import { library } from "./candidates/library.ts";
import { nginx, nginxVersion } from "./candidates/nginx.ts";
import { portkey } from "./candidates/portkey.ts";
import { check } from "./checks/correctness.ts";
import { proveRecorded } from "./checks/recorded.ts";
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
import { watchOthers } from "./processes/others.ts";
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
  /** Settled once the rivals are installed, or could not be. Until then nobody knows who is to be had. */
  readonly installed: Promise<void>;
}

/** One whole run: everybody is started, looked at, and measured in turn. */
export async function run(means: RunMeans): Promise<[Setting, Measured]> {
  const { scene, plan, program } = means;
  const machine = describeMachine();
  const othersShare = watchOthers(scene.children);
  const nginxFile = program("nginx");
  const wrkFile = program("wrk");
  const generator = wrkFile === null ? autocannon() : wrk(wrkFile);
  const upstreams = await startUpstreams(scene, nginxFile);
  const here = [direct(), nginx(nginxFile), library("http-proxy-3"), keybearer()];
  const rivals = [library("httpxy"), portkey()];
  const ready = async (kinds: readonly Kind[]) => {
    const admitted = await admit(scene, neededFor(kinds, plan), upstreams, plan);
    await warmUp(scene, generator, admitted.candidates, plan);
    return admitted;
  };

  // Requests to warm up are counted, not timed: they may as well be sent while others are being installed. autocannon is
  // one of those.
  if (wrkFile === null) await means.installed;
  const first = await ready(here);
  await means.installed;
  const second = await ready(rivals);
  const candidates = [...first.candidates, ...second.candidates];
  const loads = await measureRequests(scene, generator, candidates, plan);
  const streams = await measureStreams(scene, candidates, plan);
  const downloads = await measureDownloads(scene, candidates, plan);
  for (const { child } of candidates) if (child !== null) await scene.children.end(child);
  provePromises(scene, candidates, loads);

  const all = [...here, ...rivals];
  const kinds = all.filter((kind) => kind.version() !== null);
  const needed = neededFor(kinds, plan);
  const processes = [bareNode(), ...needed].filter(({ name }) => plan.processesOf?.includes(name) ?? true);
  const measured = {
    ...{ loads, streams, downloads },
    starts: await measureStarts(scene, processes, upstreams, plan.startRounds),
    idle: await measureIdle(scene, processes, upstreams, plan),
    ...(await onKeybearer(scene, generator, kinds, upstreams, plan)),
  };
  const setting: Setting = {
    ...{ machine, date: means.date, quick: means.quick, othersShare: othersShare() },
    contenders: [...first.contenders, ...second.contenders],
    rounds: plan.rounds,
    secondsEach: plan.seconds,
    loadGenerator: generator.name,
    upstream: nginxFile === null ? upstreams.kind : `${upstreams.kind} ${nginxVersion(nginxFile)}`,
    missing: all.filter((kind) => kind.version() === null).map(({ name, missing: why }) => ({ name, why })),
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

/** Of those that are to be had; and a quick run does not start whom it does not ask. */
function neededFor(kinds: readonly Kind[], { loads, streams }: Plan): Kind[] {
  const wishes = [...loads.map(({ rivals }) => rivals), ...streams.map(({ only }) => only)];
  return kinds.filter(
    (kind) =>
      kind.version() !== null &&
      (kind.name === "keybearer" || wishes.some((names) => names?.includes(kind.name) ?? true)),
  );
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

function provePromises(scene: Scene, candidates: readonly Candidate[], loads: readonly LoadSeries[]): void {
  const ours = candidates.find(({ name }) => name === "keybearer");
  if (ours === undefined) return;
  const sent = loads
    .filter(({ candidate }) => candidate === "keybearer")
    .reduce((sum, { slices }) => sum + slices.reduce((all, { requests }) => all + requests, 0), 0);
  proveRecorded(scene, ours, sent);
}
