import { type Dirent, statSync } from "node:fs";
import { basename, dirname } from "node:path";
import type { DestinationStream } from "pino";
import { type Loaded, loadConfig } from "../config/load.ts";
import { formatProblems, type Problem, problemInLine, warning } from "../config/problems.ts";
import { type Listen, SANDBOX } from "../config/schema.ts";
import { Snapshot } from "../config/snapshot.ts";
import { isDaemonListening } from "../control/client.ts";
import { ControlServer } from "../control/server.ts";
import { ActionLog, FreeMemory, readStatus, type Status } from "../control/status.ts";
import { Tail } from "../control/tail.ts";
import { advice } from "../core/advice.ts";
import { background } from "../core/background.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { EXIT, errorMessage, StartFailure } from "../core/errors.ts";
import { createLogger, type Logger } from "../core/log.ts";
import { setAsideForeign } from "../core/own-file.ts";
import { type Paths, prepareFolders } from "../core/paths.ts";
import { PeerLookup } from "../core/peer-user.ts";
import { ProcessLookup } from "../core/process-lookup.ts";
import type { Secret } from "../core/secret.ts";
import { createTicker } from "../core/ticker.ts";
import { version } from "../core/version.ts";
import { Dashboard } from "../dashboard/dashboard.ts";
import { KeyCheck } from "../doctor/key-check.ts";
import { Prober } from "../doctor/tool-probes.ts";
import { Keyring } from "../keys/keyring.ts";
import { type Settled, Trust } from "../keys/trust.ts";
import { Limiter } from "../limits/limiter.ts";
import { systemCalendar } from "../limits/windows.ts";
import { KeyCallBudgets } from "../mirror/consoles/key-calls.ts";
import { Mirror } from "../mirror/mirror.ts";
import { Vault } from "../mirror/vault.ts";
import type { ProxyDeps } from "../proxy/deps.ts";
import { GatewayHealth } from "../proxy/gateway-health.ts";
import { KeyHealth } from "../proxy/key-health/key-health.ts";
import { Outages } from "../proxy/outages.ts";
import { HeadCache } from "../proxy/request-head.ts";
import { hostsOf } from "../proxy/server.ts";
import { TokenUses } from "../proxy/token-uses.ts";
import { Upstream } from "../proxy/upstream.ts";
import { Shared } from "../shared/shared.ts";
import { bindDataPort, bindNextDataPort, type DataPort } from "./data-port.ts";
import { Drain } from "./drain.ts";
import { createLifecycle } from "./key-lifecycle.ts";
import { keyWarnings, Reload, trustWarnings, usableKeys, wantedKeys } from "./reload.ts";
import type { SandboxSession } from "./sandbox-session.ts";
import { servedBefore } from "./served-before.ts";
import { Shutdown } from "./shutdown.ts";
import { StateLock } from "./state-lock.ts";
import { closeUsageServices, createAllowances, openUsageServices } from "./usage-services.ts";

export interface DaemonOptions {
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly logTo: DestinationStream;
  readonly logForPeople?: boolean;
  readonly clock?: Clock;
  /** What a person should know about this start. Default nothing. */
  readonly warnings?: readonly string[];
  /** Where the sandbox is served when there is no config.yaml. Default the configuration's default. */
  readonly sandboxListen?: Listen;
}

export interface Daemon {
  readonly port: number;
  readonly addresses: readonly string[];
  /** Set when it started without a config.yaml: what to paste. */
  readonly sandboxSession: SandboxSession | null;
  readonly log: Logger;
  snapshot(): Snapshot;
  status(): Promise<Status>;
  /** SIGHUP: the file and every key are read again. */
  reload(): Promise<void>;
  /** Stops accepting, lets requests finish for `timeoutMs`, then cuts them. Default `drain` of the configuration. */
  stop(timeoutMs?: number): Promise<void>;
  /** Cuts the requests that a stop waits for. */
  cut(): void;
  /** Resolves with what happened if the state folder is no longer this daemon's alone. It stops then. */
  readonly lostLock: Promise<string>;
}

/** StateLock.take waits a quarter of a second each time. */
const LOCK_ATTEMPTS = 12;
/** For a step that limits its own time. */
const NO_LIMIT = 2 ** 31 - 1;
/** A key that takes longer, such as one whose command asks for a fingerprint, follows while the others serve. */
const FIRST_KEYS_MS = 3000;

/** Creates everything and connects it. A start that fails closes what it opened. */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const clock = options.clock ?? systemClock;
  const keys = createKeys(options, clock);
  const shutdown = new Shutdown(keys.log);
  try {
    return await start(options, clock, keys, shutdown);
  } catch (error) {
    keys.keyring.close();
    await shutdown.run();
    throw error;
  }
}

async function start(options: DaemonOptions, clock: Clock, keys: Keys, shutdown: Shutdown): Promise<Daemon> {
  const startedAt = clock.elapsed();
  // Read now: an update may replace package.json while this version still runs.
  const runningVersion = version();
  const { paths } = options;
  const { log, keyring } = keys;

  // Steps of the shutdown run in reverse order: what is opened first is closed last.
  const state = await openState(options, clock, keys, shutdown);
  const { lock, port, peers, control, sandboxSession } = state;
  const services = createServices(options, clock, keys, state, shutdown);
  const {
    reload,
    mirror,
    inFlight,
    limiter,
    outages,
    usage,
    tail,
    prober,
    ticker,
    snapshot,
    shared,
    isSandbox,
    lifecycle,
  } = services;
  const drain = new Drain({ clock, log, port, inFlight });
  const freeMemory = new FreeMemory(clock);
  const status = async () => {
    // What the other machines used since the last report.
    await shared.refresh();
    return readStatus({
      ...services,
      version: runningVersion,
      listen: port.addresses,
      sandbox: isSandbox(),
      dashboard: dashboard.status(),
      actions: services.actions.latest(),
      keyChanges: lifecycle.unfinished(),
      shared: () => shared.status(),
      configPath: paths.config,
      startedAt,
      drainLeftSeconds: drain.leftSeconds(),
      clock,
      freeMemory,
    });
  };
  const dashboard = new Dashboard({ ...services, paths, clock, log, status, port, peers });
  followChanges(services, state, dashboard, log);

  // From here on the daemon serves, and a stop has requests to wait for. It runs these from the last to the first: it fetches
  // no more keys, refuses the requests that wait, closes the dashboard, and then waits for the requests in flight.
  shutdown.add("finish the requests in flight", () => drain.finish(), NO_LIMIT);
  shutdown.add("stop watching the configuration", () => reload.close());
  shutdown.add("stop the dashboard", () => dashboard.stop());
  shutdown.add("refuse the requests that wait for a gateway", () => outages.stop());
  shutdown.add("refuse the requests that wait", () => limiter.stop());
  shutdown.add("end the commands that fetch keys", () => keyring.close());
  servePort(services, state, { clock, log, keyring, isStopping: () => drain.leftSeconds() !== null });
  control.serve({
    ...createAllowances(services, log, () => snapshot().config),
    status,
    actions: services.actions,
    lifecycle,
    log,
    reload,
    keyring,
    claim: async (tool, { place, origins }) => {
      keys.trust.claim({ name: tool, source: place, origins, home: paths.own });
      // While the sandbox serves, the first start with a config.yaml is still to come.
      if (!isSandbox()) await keys.trust.settle();
    },
    usage,
    tail,
    mirror,
    prober,
    open: (peer) => dashboard.open(peer),
  });
  shutdown.add(
    "stop watching the control socket",
    ticker.every(1, () => background(control.check(), log, "checking the control socket")),
  );
  const lostLock = new Promise<string>((resolve) => {
    const check = () => {
      const problem = lock.problem();
      if (problem !== null) resolve(problem);
    };
    shutdown.add("stop watching the lock", ticker.every(1, check));
  }).then(async (problem) => {
    log.error(
      `${problem} while keybearer ran, so another one could use the same state folder: this one refuses new requests, lets those in flight finish and exits. find out what changed the folder, then start again → ${advice.run()}`,
    );
    // What is trusted may have vanished with the lock, and without it the next start would trust any config.yaml. This also
    // makes the folder again, so that the requests in flight are recorded.
    if (!isSandbox()) await keys.trust.settle();
    return problem;
  });
  // The first step of a stop: no new connection is accepted.
  shutdown.add("close the listener", () => background(port.drain(), log, "waiting for the last connection"));

  keys.whenLate(() => background(reload.takeKeys(), log, "taking a key that came late"));
  mirror.change(snapshot());
  await reload.addStartWarnings(await services.startLifecycle());
  await dashboard.applyConfig();
  await reload.watch();

  let stopped: Promise<void> | null = null;
  const stop = (timeoutMs = snapshot().config.drain) => {
    drain.begin(timeoutMs);
    stopped ??= shutdown.run();
    return stopped;
  };
  background(
    lostLock.then(() => stop()),
    log,
    "the stop without a lock",
  );
  return {
    port: port.port,
    addresses: port.addresses,
    sandboxSession,
    log,
    status,
    stop,
    snapshot,
    reload: () => reload.refresh(true),
    cut: () => drain.cut(),
    lostLock,
  };
}

type State = Awaited<ReturnType<typeof openState>>;

/** Everything that only one daemon can have, and that a start may fail for: the lock, the configuration, the ports. */
async function openState(options: DaemonOptions, clock: Clock, keys: Keys, shutdown: Shutdown) {
  const { paths } = options;
  const { log } = keys;
  // First, because the rest belongs to one daemon.
  const lock = await takeLock(paths, shutdown);
  const loaded = await firstLoad(paths);
  const control = await openControl(paths, log, shutdown);
  const startWarnings = loadState(keys, paths, clock);
  for (const text of options.warnings ?? []) {
    log.warn(text);
    startWarnings.push(warning("", text));
  }
  const sandboxSession = loaded.config === null ? await startSandbox(options, clock, log) : null;
  shutdown.add("stop the sandbox", () => sandboxSession?.stop());
  const { initial, settled } =
    sandboxSession === null
      ? await initialSnapshot(loaded, paths, keys, startWarnings)
      : { initial: sandboxSession.snapshot, settled: { problem: null, blocksKeys: false } };
  log.level = initial.config.log.level;
  const processLookup = new ProcessLookup(log);
  if (initial.processTools.length > 0) await processLookup.prepare();
  const peers = new PeerLookup();
  const isPortFree = sandboxSession !== null && options.sandboxListen === undefined;
  const bind = isPortFree ? bindNextDataPort : bindDataPort;
  const port = await bind(initial.config.listen, peers, log);
  shutdown.add("close the port", () => closePort(port));
  return {
    lock,
    loaded,
    control,
    startWarnings,
    sandboxSession,
    initial,
    settled,
    processLookup,
    peers,
    port,
  };
}

type Services = ReturnType<typeof createServices>;

/** What serves requests, and what watches them: connections, configuration, usage, mirror, health. */
function createServices(
  { paths, env }: DaemonOptions,
  clock: Clock,
  keys: Keys,
  state: State,
  shutdown: Shutdown,
) {
  const { trust, keyring, vault, log } = keys;
  const { loaded, initial, settled, startWarnings, sandboxSession } = state;
  const upstream = new Upstream(clock);
  const { agentFor } = upstream.agents;
  shutdown.add("close the connections to gateways", () => upstream.agents.close());
  const ticker = createTicker();
  const gatewayHealth = new GatewayHealth(clock);
  const keyCalls = new KeyCallBudgets(() => clock.now(), paths.keyCalls);
  shutdown.add("save when gateways were asked about keys", () => keyCalls.saved());
  const listedFault = (gateway: string, key: Secret) => mirror.keyFault(gateway, key);
  const keyCheck = new KeyCheck({ clock, keyCalls, agentFor, listedFault });
  shutdown.add("stop asking about keys", () => keyCheck.stop());

  const fileWarnings = sandboxSession === null ? loaded.problems : [];
  const reload = new Reload({
    paths,
    clock,
    ticker,
    log,
    keyring,
    trust,
    initial: { loaded, snapshot: initial, fileWarnings, settled, startWarnings },
  });
  const snapshot = () => reload.snapshot;
  const limiter = new Limiter(clock, systemCalendar);
  // Before the journal is read: it decides in which windows the requests of earlier runs count.
  const shared = new Shared({
    file: paths.shared,
    clock,
    ticker,
    log,
    limiter,
    snapshot,
    usage: () => usageServices.usage,
    journalFolder: paths.usage,
    cut: (tool) => usageServices.inFlight.cut(tool),
  });
  const usageServices = openUsageServices(paths, clock, ticker, log, limiter, () => snapshot().config);
  shutdown.add("close the usage log", () => closeUsageServices(usageServices));
  shutdown.add("leave the shared store", () => shared.stop());
  const { mirrorDatabase, mirrorUsage, truncationCheck, prices, journal, usage } = usageServices;
  const mirror = new Mirror({
    clock,
    log,
    vault,
    snapshot,
    agentFor,
    keyCalls,
    database: mirrorDatabase,
    usage: mirrorUsage,
    truncationCheck,
    siblings: () => shared.siblings(),
    prices,
    // What a console knows better counts under the limits, too.
    onCorrected: (correction) => limiter.correct(correction.tool, correction),
    onAlarms: (alarms) => automaticRotation.onAlarms(alarms),
    isChanging: (key) => lifecycle.isChanging(key),
  });
  // It writes into the usage log, so it stops before that is closed.
  shutdown.add("stop the mirror", () => mirror.stop());
  // Each start has a new sandbox, and none with a config.yaml: rows of an earlier one mean nothing.
  if (sandboxSession !== null || !Object.hasOwn(initial.config.gateways, SANDBOX)) mirror.forget(SANDBOX);
  const actions = new ActionLog(clock);
  const { lifecycle, automaticRotation, startLifecycle } = createLifecycle({
    ...usageServices,
    paths,
    env,
    clock,
    log,
    ticker,
    keyring,
    trust,
    reload,
    mirror,
    shared,
    keyCheck,
    agentFor,
    actions,
    sandboxSession,
    shutdown,
  });
  const keyHealth = new KeyHealth(clock, (tool) => journal.lastUse(tool));
  const tokenUses = new TokenUses({
    file: paths.tokenUses,
    clock,
    log,
    isKnown: (hash) => snapshot().toolByToken(hash) !== null,
    configChangedAt: () => statSync(paths.config, { throwIfNoEntry: false })?.mtimeMs ?? null,
  });
  // The sandbox has no config.yaml that could have lost a token.
  if (sandboxSession === null) tokenUses.followStart();
  shutdown.add("write when tokens were last used", () => tokenUses.stop());
  return {
    ...usageServices,
    ticker,
    upstream,
    outages: new Outages(),
    gatewayHealth,
    keyCheck,
    keyHealth,
    reload,
    shared,
    snapshot,
    mirror,
    actions,
    lifecycle,
    startLifecycle,
    tokenUses,
    tail: new Tail(),
    prober: new Prober({ clock, snapshot, agentFor, keyCheck, keyHealth, prices, usage }),
    isSandbox: () => sandboxSession?.serving() ?? false,
  };
}

/** What a new configuration changes, beside the snapshot that every request takes. */
function followChanges(services: Services, state: State, dashboard: Dashboard, log: Logger): void {
  const { reload, keyHealth, upstream, gatewayHealth, limiter, journal, mirror, shared, isSandbox } =
    services;
  const { tokenUses } = services;
  const { sandboxSession, processLookup } = state;
  reload.onChange((from, to) => {
    log.level = to.config.log.level;
    // Not after a key was read again and is the same: that happens after each 401.
    if (from.config !== to.config) keyHealth.endPauses();
    const gateways = Object.values(to.config.gateways);
    upstream.agents.keepOnly(gateways);
    gatewayHealth.keepOnly(gateways);
    shared.change(to);
    const tools = Object.values(from.config.tools);
    if (from.config !== to.config)
      tokenUses.follow(tools.flatMap(({ tokens }) => tokens.map(({ hash }) => hash)));
    const renamed = limiter.change(to.config);
    if (renamed !== null && !journal.rename(renamed))
      log.error(
        renamed,
        "the usage log cannot be written, so the next start loses the counters of a renamed tool",
      );
    // Its own key may change: that is no config.yaml.
    if (isSandbox() && from.config !== to.config) endSandbox(sandboxSession, mirror, log);
    mirror.change(to);
    background(dashboard.applyConfig(), log, "applying the configuration to the dashboard");
    if (to.processTools.length > 0) background(processLookup.prepare(), log, "preparing the process lookup");
  });
}

/** Serves requests on the data port, also those that came while the rest was still being opened. */
function servePort(
  services: Services,
  { port, peers, processLookup }: State,
  deps: Pick<ProxyDeps, "clock" | "log" | "isStopping"> & { readonly keyring: Keyring },
): void {
  const { prober, reload, tail } = services;
  const { log, keyring } = deps;
  const rereadKey = async (tool: string) => {
    if (await keyring.reread(tool)) await reload.takeKeys();
  };
  services.journal.onRefusals((record) => {
    if (tail.isFollowed()) tail.notify(record);
  });
  port.serve({
    ...services,
    ...deps,
    processLookup,
    peers,
    heads: new HeadCache(hostsOf(port.port)),
    isFollowed: () => tail.isFollowed(),
    notify: (record) => tail.notify(record),
    billsAsStreamed: (gateway) => services.mirror.billsAsStreamed(gateway),
    rereadKey: (tool) => background(rereadKey(tool), log, `reading the key of ${tool} again`),
    checkKey: (tool, gateway, key, cause) =>
      background(prober.checkKey(tool, gateway, key, cause), log, `asking about the key of ${tool}`),
  });
}

function closePort(port: DataPort): Promise<void> {
  const drained = port.drain();
  port.cut();
  return drained;
}

async function takeLock(paths: Paths, shutdown: Shutdown): Promise<StateLock> {
  const faults = prepareFolders(paths);
  if (faults.length > 0) throw new StartFailure(EXIT.badConfig, faults.join("\n"));
  const lock = await waitForLock(paths);
  if (lock === null) throw new StartFailure(EXIT.alreadyRunning, ALREADY_RUNNING);
  shutdown.add("release the lock", () => lock.release());
  return lock;
}

/** null: another daemon holds it. A command that brings the usage index up to date holds it for a moment only. */
async function waitForLock(paths: Paths): Promise<StateLock | null> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const lock = StateLock.take(paths.lock);
      if (lock !== null) return lock;
    } catch (error) {
      throw new StartFailure(EXIT.failed, `cannot lock ${paths.lock}: ${errorMessage(error)}`);
    }
    if (attempt === LOCK_ATTEMPTS || (await isDaemonListening(paths.socket))) return null;
  }
}

const ALREADY_RUNNING = `keybearer is already running here, or still stopping → ${advice.status()}`;

/** Imported only here: with a config.yaml, nothing of the sandbox is loaded. */
async function startSandbox(options: DaemonOptions, clock: Clock, log: Logger): Promise<SandboxSession> {
  const { startSandboxSession } = await import("./sandbox-session.ts");
  return await startSandboxSession(clock, log, options.sandboxListen);
}

function endSandbox(sandboxSession: SandboxSession | null, mirror: Mirror, log: Logger): void {
  log.info("found a config.yaml, so the sandbox ends");
  if (sandboxSession !== null) background(sandboxSession.end(), log, "ending the sandbox");
  mirror.forget(SANDBOX);
}

/** If there is no file, the sandbox serves; a file named with --config must exist. */
async function firstLoad(paths: Paths): Promise<Loaded> {
  const loaded = await loadConfig(paths.config, { home: paths.home, strict: true });
  if (loaded.config === null && (loaded.found || paths.explicit)) {
    throw new StartFailure(EXIT.badConfig, formatProblems(paths.config, loaded.problems));
  }
  return loaded;
}

async function openControl(paths: Paths, log: Logger, shutdown: Shutdown): Promise<ControlServer> {
  const control = new ControlServer(paths.socket, log);
  shutdown.add("close the control socket", () => control.close());
  switch (await control.listen()) {
    case "listening":
      return control;
    case "already running":
      throw new StartFailure(EXIT.alreadyRunning, ALREADY_RUNNING);
    case "path too long":
      throw new StartFailure(
        EXIT.failed,
        `the path of the control socket is too long for the system: ${paths.socket}. set a shorter KEYBEARER_HOME`,
      );
  }
}

interface Keys {
  readonly trust: Trust;
  readonly keyring: Keyring;
  readonly vault: Vault;
  readonly log: Logger;
  /** Calls back for every key that arrives late, and at once if one arrived before this call. */
  whenLate(notify: () => void): void;
}

/** The logger redacts the keys of the keyring and of the vault, so they are created together. */
function createKeys(options: DaemonOptions, clock: Clock): Keys {
  let late = false;
  let notifyLate = (): void => {
    late = true;
  };
  const trust = new Trust({
    file: options.paths.trust,
    clock,
    ranBefore: () => servedBefore(options.paths),
  });
  const vault = new Vault(options.paths.consoles, clock);
  const keyring = new Keyring({ trust, env: options.env, clock, onLate: () => notifyLate() });
  const log = createLogger({
    level: "info",
    destination: options.logTo,
    forPeople: options.logForPeople ?? false,
    secrets: [() => keyring.secrets(), () => vault.secrets()],
  });
  const whenLate = (notify: () => void) => {
    notifyLate = notify;
    if (late) notify();
  };
  return { trust, keyring, vault, log, whenLate };
}

/** Reads what earlier runs stored. Returns the warnings that `status` shows until the next start. */
function loadState({ trust, vault, log }: Keys, paths: Paths, clock: Clock): Problem[] {
  const problems = setAsideForeignState(paths, clock.now());
  const lost = trust.load();
  if (lost.problem !== null) log.error(lost.problem);
  const login = vault.load();
  if (login.problem !== null) problems.push(login.problem);
  for (const problem of problems) log.error(problem);
  return problems.map((problem) => warning("", problem));
}

/** Every program of this user can put links and pipes where keybearer's files are. */
function setAsideForeignState(paths: Paths, now: number): string[] {
  const { state, usage, run, lock } = paths;
  // lock.db is open, and was checked before.
  const others: unknown[] = [usage, run, lock];
  const names = new Set<string>();
  for (const path of Object.values(paths))
    if (typeof path === "string" && dirname(path) === state && !others.includes(path))
      names.add(basename(path));
  const isState = ({ name }: Dirent) => names.has(name.replace(/(?<=\.db)-(wal|shm|journal)$/, ""));
  // A person may have put a folder where a day's file belongs. Then nothing is sent until it is gone.
  const isDay = (entry: Dirent) => /\.jsonl(\.gz)?$/.test(entry.name) && !entry.isDirectory();
  return [...setAsideForeign(state, isState, now), ...setAsideForeign(usage, isDay, now)];
}

async function initialSnapshot(
  { config, problems }: Loaded,
  paths: Paths,
  keys: Keys,
  startWarnings: readonly Problem[],
): Promise<{ readonly initial: Snapshot; readonly settled: Settled }> {
  if (config === null) throw new StartFailure(EXIT.badConfig, formatProblems(paths.config, problems));
  const states = await keys.keyring.resolve(wantedKeys(config, paths), FIRST_KEYS_MS);
  const settled = await keys.trust.settle();
  if (settled.problem !== null) keys.log.error(settled.problem);
  const warnings = [...trustWarnings(keys.trust), ...problems, ...keyWarnings(keys.keyring)];
  for (const problem of warnings) keys.log.warn({ path: problem.path }, problemInLine(problem));
  const usable = usableKeys(states, settled);
  return { initial: new Snapshot(1, config, usable, [...startWarnings, ...warnings]), settled };
}
