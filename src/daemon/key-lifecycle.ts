import type { Agent } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { type Gateway, SANDBOX, type Tool } from "../config/schema.ts";
import type { ActionLog } from "../control/status.ts";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Paths } from "../core/paths.ts";
import type { Secret } from "../core/secret.ts";
import type { Ticker } from "../core/ticker.ts";
import type { KeyCheck } from "../doctor/key-check.ts";
import { probeKey } from "../doctor/probe.ts";
import type { Keyring, WantedKey } from "../keys/keyring.ts";
import type { KeyPlace } from "../keys/stored-keys.ts";
import { listOrigins, type Trust } from "../keys/trust.ts";
import { AutomaticRotation } from "../lifecycle/automatic.ts";
import { IntentFile, type OldKey } from "../lifecycle/intents.ts";
import { intentProblem, KeyLifecycle } from "../lifecycle/lifecycle.ts";
import type { KeyTrust, LifecycleDeps, Probed } from "../lifecycle/steps.ts";
import { ConfigStorage, type KeyStorage } from "../lifecycle/storage.ts";
import type { Mirror } from "../mirror/mirror.ts";
import type { InFlight } from "../proxy/in-flight.ts";
import type { Shared } from "../shared/shared.ts";
import { gatewayDestinations, type Reload, wantedKeys } from "./reload.ts";
import type { SandboxSession } from "./sandbox-session.ts";
import type { Shutdown } from "./shutdown.ts";

interface Deps {
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly log: Logger;
  readonly ticker: Ticker;
  readonly keyring: Keyring;
  readonly trust: Trust;
  readonly reload: Reload;
  readonly mirror: Mirror;
  readonly shared: Pick<Shared, "findUsers" | "noteRotated" | "rotatedElsewhere">;
  readonly keyCheck: KeyCheck;
  readonly agentFor: (gateway: Gateway, origin: string) => Agent;
  readonly inFlight: InFlight;
  readonly actions: ActionLog;
  readonly sandboxSession: SandboxSession | null;
  readonly shutdown: Shutdown;
}

/** Unfinished changes of keys are taken up again this often, in seconds. */
const RESUME_SECONDS = 60;
/** After the last request, a stop waits this long for the steps in flight. */
const SETTLE_MS = 5000;
/** How often it is checked whether another machine rotated a key that is used here, in seconds. */
const SIBLINGS_SECONDS = 5;

/** What creates, rotates and deletes keys through the consoles, by command and by itself. */
export function createLifecycle(deps: Deps) {
  const { paths, env, clock, log, ticker, keyring, reload, mirror, inFlight, actions, shutdown } = deps;
  const snapshot = () => reload.snapshot;
  const intents = new IntentFile(paths.keyChanges);
  const inConfig = new ConfigStorage({ paths, env, snapshot, reload, keyring });
  const session = deps.sandboxSession;
  const inSandbox = session === null ? null : new SandboxStorage(session, reload);
  const keyTrust = new ConfigTrust(deps.trust, () => wantedKeys(snapshot().config, paths));
  const lifecycleDeps: LifecycleDeps = {
    clock,
    log,
    intents,
    snapshot,
    storage: () => (inSandbox !== null && session?.serving() ? inSandbox : inConfig),
    trust: () => (session?.serving() ? SANDBOX_TRUST : keyTrust),
    consoles: mirror,
    siblings: deps.shared,
    report: (problems) => {
      for (const text of problems) log.error(text);
      background(reload.addStartWarnings(problems), log, "showing what was found in state files");
    },
    probe: (gateway, key, brief) => probe(deps, gateway, key, brief),
    whenUnused: (key, signal) => inFlight.whenUnused(key, signal),
    pause: (milliseconds, signal) => pause(milliseconds, undefined, { signal, ref: false }),
  };
  const lifecycle = new KeyLifecycle(lifecycleDeps);
  const automaticRotation = new AutomaticRotation({
    clock,
    log,
    snapshot,
    consoles: mirror,
    intents,
    lifecycle,
    rotatedElsewhere: () => deps.shared.rotatedElsewhere(),
    probe: lifecycleDeps.probe,
    onRotated: (what) => actions.add(what),
  });
  /** Returns what `status` shows until the next start. */
  const startLifecycle = async (): Promise<string[]> => {
    const { problem } = intents.load(clock.now());
    const problems = problem === null ? [] : [problem];
    // The sandbox that they were for is gone, with its keys. A gateway of config.yaml may have the same name.
    const isGone = session !== null || !Object.hasOwn(snapshot().config.gateways, SANDBOX);
    for (const intent of intents.all())
      if (isGone && intent.gateway === SANDBOX) await intents.remove(intent);
    problems.push(...(await intents.keepOwn((intent) => intentProblem(intent, lifecycleDeps), clock.now())));
    for (const text of problems) log.error(text);
    lifecycle.resume();
    automaticRotation.start();
    shutdown.add(
      "stop to resume changes of keys",
      ticker.every(RESUME_SECONDS, () => lifecycle.resume()),
    );
    shutdown.add(
      "stop following the rotations of other machines",
      ticker.every(SIBLINGS_SECONDS, () =>
        background(automaticRotation.checkSiblings(), log, "following the rotations of other machines"),
      ),
    );
    shutdown.add("stop rotating keys", async () => {
      lifecycle.stop();
      await automaticRotation.stop();
    });
    return problems;
  };
  // After the requests in flight, because a step may wait for a console. One that is given up is taken again at the next
  // start. It may read keys.
  shutdown.add("end the commands that fetch keys", () => keyring.close());
  shutdown.add("finish the changes of keys", () => lifecycle.settled(), SETTLE_MS);
  return { lifecycle, automaticRotation, startLifecycle };
}

async function probe(deps: Deps, gateway: Gateway, key: Secret, brief: boolean): Promise<Probed> {
  const probed = await probeKey(deps, gateway, key, { brief });
  if (probed.ok) return { state: "accepted" };
  return { state: probed.status === 401 ? "refused" : "unclear", problem: probed.problem, next: probed.next };
}

/** The keys of config.yaml, judged as a reload judges them. */
class ConfigTrust implements KeyTrust {
  readonly #trust: Trust;
  readonly #wanted: () => readonly WantedKey[];

  constructor(trust: Trust, wanted: () => readonly WantedKey[]) {
    this.#trust = trust;
    this.#wanted = wanted;
  }

  digestOf(key: Secret): string {
    return this.#trust.digestOf(key);
  }

  isKnown(key: Secret): boolean {
    return this.#trust.pinOf(this.digestOf(key)) !== null;
  }

  isPinned({ digest, fingerprint }: Pick<OldKey, "digest" | "fingerprint">, gateway: Gateway): boolean {
    const pin = this.#trust.pinOf(digest);
    const needed = listOrigins({ origins: gatewayDestinations(gateway) });
    return pin?.fingerprint === fingerprint && needed.every((origin) => pin.origins.includes(origin));
  }

  async claim(tool: Tool, place: KeyPlace): Promise<void> {
    const wanted = this.#wanted().find(({ name }) => name === tool.name);
    if (wanted === undefined) return;
    this.#trust.claim({ ...wanted, source: place });
    await this.#trust.settle();
  }

  async admit(tool: Tool, key: Secret): Promise<string | null> {
    const wanted = this.#wanted().find(({ name }) => name === tool.name);
    if (wanted === undefined) return `there is no tool ${tool.name} in config.yaml`;
    const held = this.#trust.judgeKey(wanted, key);
    if (held !== null) return `${held.what} waits for your confirmation: ${held.from} → ${held.to}`;
    const { problem, blocksKeys } = await this.#trust.settle();
    return blocksKeys ? problem : null;
  }
}

/** Its keys exist only in this process and for its own gateway. */
const SANDBOX_TRUST: KeyTrust = {
  digestOf: (key) => key.digest(SANDBOX),
  isKnown: () => false,
  isPinned: () => true,
  claim: async () => {},
  admit: async () => null,
};

/** The key of the sandbox's tool. It is in memory only, and ends with the sandbox. */
class SandboxStorage implements KeyStorage {
  readonly #session: SandboxSession;
  readonly #reload: Pick<Reload, "replaceKeys">;
  /** By the path of their place, which is no real file. */
  readonly #keys = new Map<string, Secret>();
  #current: KeyPlace | null = null;
  #count = 0;

  constructor(session: SandboxSession, reload: Pick<Reload, "replaceKeys">) {
    this.#session = session;
    this.#reload = reload;
  }

  placeOf(): KeyPlace | null {
    return this.#current;
  }

  isPlaceFor(): boolean {
    return true;
  }

  isOwn(): boolean {
    return true;
  }

  async nextPlace({ name }: Tool): Promise<KeyPlace> {
    this.#count += 1;
    return { kind: "file", path: `${SANDBOX}/${name}-${this.#count}` };
  }

  async read(place: KeyPlace): Promise<Secret | null> {
    return this.#keys.get(nameOf(place)) ?? null;
  }

  async write(place: KeyPlace, key: Secret): Promise<void> {
    this.#keys.set(nameOf(place), key);
  }

  async use(_tool: string, place: KeyPlace): Promise<void> {
    const key = await this.read(place);
    if (key === null) return;
    this.#current = place;
    await this.#reload.replaceKeys(this.#session.keysWith(key));
  }

  async isNamed(place: KeyPlace): Promise<boolean> {
    return this.#current !== null && nameOf(place) === nameOf(this.#current);
  }

  async remove(place: KeyPlace): Promise<void> {
    this.#keys.delete(nameOf(place));
  }
}

function nameOf(place: KeyPlace): string {
  return place.kind === "file" ? place.path : place.account;
}
