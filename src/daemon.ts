import type { DestinationStream } from "pino";
import { createBeat } from "./beat.ts";
import { closeBooks, createAllowances, openBooks, openMirror } from "./bookkeeping.ts";
import { type Clock, systemClock } from "./clock.ts";
import { SANDBOX } from "./config/defaults.ts";
import { type Loaded, loadConfig } from "./config/load.ts";
import { problemsInWords } from "./config/problem.ts";
import type { Listen } from "./config/shape.ts";
import { createSnapshot, type Snapshot } from "./config/snapshot.ts";
import { type ControlServer, createControlServer } from "./control/server.ts";
import { type Status, statusOf } from "./control/status.ts";
import { createTail } from "./control/tail.ts";
import { createTrusting } from "./control/trusting.ts";
import { createDashboardPort } from "./dashboard-port.ts";
import { openDataPort } from "./data-port.ts";
import { createProbing } from "./doctor/probing.ts";
import { createOwners } from "./identity/process.ts";
import { createKeyring, type Keyring } from "./keys/keyring.ts";
import { createTrust, type Trust } from "./keys/trust.ts";
import { createLogger, type LineLogger, type Logger } from "./logger.ts";
import type { Mirror } from "./mirror/mirror.ts";
import { createVault, type Vault } from "./mirror/vault.ts";
import type { Newcomer } from "./newcomer.ts";
import { type Places, prepareFolders } from "./places.ts";
import { createForwarder } from "./proxy/forward.ts";
import { GatewayHealth } from "./proxy/gateway-health.ts";
import { createKeyHealth } from "./proxy/key-health.ts";
import { hostsOf, type Port } from "./proxy/server.ts";
import { createWays } from "./proxy/ways.ts";
import { keyWarnings, Reload, wantsOf } from "./reload.ts";
import { joined } from "./secret-set.ts";
import { EXIT, StartFailure } from "./start-failure.ts";
import { readLastUses } from "./usage/ledger/spent.ts";
import { version } from "./version.ts";

export interface DaemonOptions {
  readonly places: Places;
  readonly env: NodeJS.ProcessEnv;
  readonly logTo: DestinationStream;
  readonly logForPeople?: boolean;
  readonly clock?: Clock;
  /** Where the sandbox is served when there is no config.yaml. Default the configuration's default. */
  readonly sandboxListen?: Listen;
}

export interface Daemon {
  readonly port: number;
  readonly addresses: readonly string[];
  /** Set when it started without a config.yaml: what to paste. */
  readonly newcomer: Newcomer | null;
  readonly log: Logger;
  snapshot(): Snapshot;
  status(): Promise<Status>;
  /** SIGHUP: the file and every key are read again. */
  reload(): Promise<void>;
  /** Stops accepting, lets requests finish for so long, then cuts them. */
  stop(patienceMs?: number): Promise<void>;
  /** Ends a stop that is under way at once. */
  cut(): void;
}

const DRAIN_MS = 10_000;
/** A key that takes longer, such as a command that waits for a finger, follows while the others serve. */
const FIRST_KEYS_MS = 3000;

/** The one place where everything is made and put together. */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { places, clock = systemClock } = options;
  // The version now: once the package is replaced under it, the file tells of another one than the one that runs.
  const [startedAt, running] = [clock.elapsed(), version()];
  const prepared = await prepare(options, clock);
  const { loaded, control, newcomer, first, trust, keyring, vault, owners, log, whenLate } = prepared;
  const [onSandbox, ways, beat] = [() => newcomer?.serving() ?? false, createWays(clock), createBeat()];
  const gate = { hosts: [] as readonly string[], stopping: false, onSwap: () => {} };

  const onSwap = (_from: Snapshot, to: Snapshot) => {
    log.level = to.config.log.level;
    for (const each of [ways, gatewayHealth]) each.keepOnly(Object.values(to.config.gateways));
    books.limiter.change(to.config);
    if (onSandbox()) endSandbox(newcomer, mirror, log);
    mirror.change(to);
    gate.onSwap();
  };
  const begin = { loaded, snapshot: first, warnings: newcomer === null ? loaded.problems : [] };
  const reload = new Reload({ places, clock, beat, log, keyring, trust, first: begin, onSwap });
  whenLate(() => void reload.takeKeys());
  const [config, snapshot] = [() => reload.snapshot.config, () => reload.snapshot];
  const booksMeans = { places, clock, beat, log, config, onSaved: () => mirror.compareAgain() };
  const books = openBooks(booksMeans);
  const tail = createTail(() => void books.ledger.ask(() => null));
  const mirror = openMirror(books, { clock, log, vault, snapshot, agentFor: ways.agentFor });
  // The sandbox is another one each time, and gone once there is a config.yaml.
  if (newcomer !== null || !Object.hasOwn(first.config.gateways, SANDBOX)) mirror.forget(SANDBOX);
  const keyHealth = createKeyHealth(clock, books.ledger.ask(readLastUses) ?? new Map());
  const gatewayHealth = new GatewayHealth(clock);
  const closeAll = () =>
    Promise.all([reload.close(), newcomer?.stop(), control.close(), closeBooks(books, mirror)]);
  const reread = async (tool: string) => {
    if (await keyring.reread(tool)) await reload.takeKeys();
  };

  const port = await openDataPort(first.config.listen, {
    ...{ clock, log, keyHealth, gatewayHealth, followed: tail.followed, tell: tail.tell, ...books },
    ...{ snapshot, ways, forwarder: createForwarder(clock), owners },
    ...{ hosts: () => gate.hosts, stopping: () => gate.stopping, sandbox: onSandbox },
    rereadKey: (tool) => void reread(tool),
  }).catch(async (error) => {
    await closeAll();
    throw error;
  });
  gate.hosts = hostsOf(port.port);

  const seen = { reload, keyHealth, gatewayHealth, ...books, mirror, startedAt, clock };
  const standing = () => ({ listen: port.addresses, sandbox: onSandbox(), dashboard: dashboard.status() });
  const status = () => statusOf({ version: running, configPath: places.config, ...standing(), ...seen });
  const owner = { ...createTrusting({ reload, keyring, log }), ...createAllowances(books, booksMeans) };
  const probing = createProbing({ clock, snapshot, agentFor: ways.agentFor, ...books });
  const shown = { places, clock, log, books, mirror, tail, status, snapshot, port, probing, reload };
  const dashboard = createDashboardPort({ ...shown, sandbox: onSandbox });
  gate.onSwap = () => [dashboard.follow(), owners.prepare(snapshot().processTools)];
  control.serve({ status, ...owner, tail, mirror, probing, open: (peer) => dashboard.open(peer) });
  mirror.change(reload.snapshot);
  await dashboard.follow();
  await reload.watch();
  void books.prices.load();
  const cut = () => [books.running.cutAll(), port.cut()];

  const stop = async (patienceMs = DRAIN_MS) => {
    gate.stopping = true;
    keyring.close();
    books.limiter.stop();
    await dashboard.stop();
    await drained(port, cut, patienceMs);
    await closeAll().then(ways.close);
  };
  return {
    ...{ port: port.port, addresses: port.addresses, newcomer, log, status, stop, snapshot },
    reload: () => reload.refresh(true),
    cut: () => void cut(),
  };
}

async function drained(port: Port, cut: () => unknown, patienceMs: number): Promise<void> {
  const timer = setTimeout(cut, patienceMs);
  await port.drain();
  clearTimeout(timer);
}

/** Before anything is served: the home is ours, the keys are read, and the first configuration stands. */
async function prepare(options: DaemonOptions, clock: Clock) {
  const { places } = options;
  const loaded = await firstLoad(places);
  const control = createControlServer(places.socket);
  await claim(control, places);
  const keys = createKeys(options, clock);
  await loadTrust(keys);
  const newcomer = loaded.config === null ? await welcome(options, clock) : null;
  const first = newcomer?.snapshot ?? (await firstSnapshot(loaded, places, keys));
  keys.log.level = first.config.log.level;
  const owners = createOwners(keys.log);
  await owners.prepare(first.processTools);
  return { loaded, control, newcomer, first, owners, ...keys };
}

/** With a config.yaml the sandbox is never served, and none of it read: not at the start, and not later. */
async function welcome({ sandboxListen }: DaemonOptions, clock: Clock): Promise<Newcomer> {
  const { welcomeNewcomer } = await import("./newcomer.ts");
  return await welcomeNewcomer(clock, sandboxListen);
}

function endSandbox(newcomer: Newcomer | null, mirror: Mirror, log: Logger): void {
  log.info("a config.yaml is there: the sandbox ends");
  void newcomer?.end().catch((error) => log.error({ err: error }, "the sandbox did not end well"));
  mirror.forget(SANDBOX);
}

/** No file, unless it was named, is not an error: then the sandbox serves. */
async function firstLoad(places: Places): Promise<Loaded> {
  const faults = prepareFolders(places);
  if (faults.length > 0) throw new StartFailure(EXIT.badConfig, faults.join("\n"));
  const loaded = await loadConfig(places.config, { home: places.home, strict: true });
  if (loaded.config === null && (loaded.found || places.explicit)) {
    throw new StartFailure(EXIT.badConfig, problemsInWords(places.config, loaded.problems));
  }
  return loaded;
}

async function claim(control: ControlServer, places: Places): Promise<void> {
  switch (await control.claim()) {
    case "claimed":
      return;
    case "already running":
      throw new StartFailure(EXIT.alreadyRunning, "keybearer is already running here → keybearer status");
    case "path too long":
      throw new StartFailure(
        EXIT.failed,
        `the path of the control socket is too long for the system: ${places.socket}. set a shorter KEYBEARER_HOME`,
      );
  }
}

interface Keys {
  readonly trust: Trust;
  readonly keyring: Keyring;
  readonly vault: Vault;
  readonly log: LineLogger;
  /** Calls back for every key that comes late, and at once if one came before there was anybody to tell. */
  whenLate(tell: () => void): void;
}

/** The keyring tells of late keys, and the logger hides the keyring's keys: they are made together. */
function createKeys(options: DaemonOptions, clock: Clock): Keys {
  let late = false;
  let tellLate = (): void => {
    late = true;
  };
  const trust = createTrust({ file: options.places.trust, clock });
  const vault = createVault({ file: options.places.consoles, clock });
  const keyring = createKeyring({ trust, env: options.env, clock, onLate: () => tellLate() });
  const log = createLogger({
    level: "info",
    destination: options.logTo,
    forPeople: options.logForPeople ?? false,
    secrets: joined(
      () => keyring.secrets(),
      () => vault.secrets(),
    ),
  });
  const whenLate = (tell: () => void) => {
    tellLate = tell;
    if (late) tell();
  };
  return { trust, keyring, vault, log, whenLate };
}

async function loadTrust({ trust, vault, log }: Keys): Promise<void> {
  for (const { problem } of [await trust.load(), await vault.load()]) {
    if (problem !== null) log.error(problem);
  }
}

async function firstSnapshot({ config, problems }: Loaded, places: Places, keys: Keys): Promise<Snapshot> {
  if (config === null) throw new StartFailure(EXIT.badConfig, problemsInWords(places.config, problems));
  const states = await keys.keyring.resolve(wantsOf(config, places), FIRST_KEYS_MS);
  const settled = await keys.trust.settle();
  if (settled.problem !== null) keys.log.error(settled.problem);
  const warnings = [...problems, ...keyWarnings(keys.keyring)];
  for (const { path, message } of warnings) keys.log.warn({ path }, message);
  return createSnapshot(1, config, states, warnings);
}
