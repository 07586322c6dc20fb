import type { DestinationStream } from "pino";
import type { Listen } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Controls } from "../control/routes.ts";
import { FreeMemory, readStatus, type Status } from "../control/status.ts";
import { advice } from "../core/advice.ts";
import { background } from "../core/background.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { HttpError } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import type { Paths } from "../core/paths.ts";
import type { Ticker } from "../core/ticker.ts";
import { version } from "../core/version.ts";
import { Dashboard } from "../dashboard/dashboard.ts";
import { HeadCache } from "../proxy/request-head.ts";
import { hostsOf } from "../proxy/server.ts";
import { createAllowances } from "./allowances.ts";
import { followChanges } from "./config-changes.ts";
import { Drain } from "./drain.ts";
import { createEventControls } from "./event-controls.ts";
import { createKeys, type Keys } from "./keys.ts";
import { openState } from "./open-state.ts";
import type { SandboxSession } from "./sandbox-session.ts";
import { createServices, type Services } from "./services.ts";
import { createSessionControls } from "./session-controls.ts";
import { Shutdown } from "./shutdown.ts";
import type { StateLock } from "./state-lock.ts";

interface DaemonOptions {
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

/** For a step that limits its own time. */
const NO_LIMIT = 2 ** 31 - 1;

/** Creates everything and connects it. A start that fails closes what it opened. */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { paths, env, logTo, logForPeople = false, clock = systemClock } = options;
  const keys = createKeys({ paths, env, logTo, logForPeople, clock });
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
  const { paths, env, warnings = [], sandboxListen = null } = options;
  const { log, keyring, trust } = keys;

  // Steps of the shutdown run in reverse order: what is opened first is closed last.
  const opened = await openState({ paths, clock, warnings, sandboxListen }, keys, shutdown);
  const { lock, control, sandboxSession, processLookup, projects, peers, port } = opened;
  const services = createServices({ version: runningVersion, paths, env, clock }, keys, opened, shutdown);
  const { ticker, upstream, outages, gatewayHealth, keyHealth } = services;
  const { reload, snapshot, isSandbox, limiter, shared, usage, journal, prices, inFlight, bodies } = services;
  const { mirror, otherModels, metrics, actions, lifecycle, tokenUses, prober, tail } = services;
  const { events, eventWatch, notifier } = services;
  events.onEvent(notifier.notify);
  const drain = new Drain({ clock, log, port, inFlight });
  const freeMemory = new FreeMemory(clock);

  const status = async () => {
    // What the other machines used since the last report.
    await shared.refresh();
    return readStatus({
      version: runningVersion,
      clock,
      startedAt,
      drainLeftSeconds: drain.leftSeconds(),
      listen: port.addresses,
      sandbox: isSandbox(),
      configPath: paths.config,
      reload,
      keyHealth,
      gatewayHealth,
      limiter,
      usage,
      mirror,
      shared,
      notify: notifier.status(),
      otherModels,
      dashboard: dashboard.status(),
      metrics: metrics.status(),
      keyChanges: lifecycle.unfinished(),
      actions: actions.latest(),
      freeMemory,
      events: events.active(),
    });
  };
  const dashboard = new Dashboard({
    paths,
    clock,
    log,
    reload,
    isSandbox,
    usage,
    inFlight,
    tail,
    port,
    peers,
    env,
    controls: () => controls,
  });
  followChanges({
    reload,
    upstream,
    gatewayHealth,
    keyHealth,
    limiter,
    journal,
    shared,
    tokenUses,
    mirror,
    notifier,
    isSandbox,
    sandboxSession,
    processLookup,
    projects,
    peers,
    mode: paths.mode,
    dashboard,
    metrics,
    log,
  });

  // From here on the daemon serves, and a stop has requests to wait for. It runs these from the last to the first: it refuses
  // the requests that wait, closes the dashboard, and then waits for the requests in flight. What may take long comes after
  // that: those requests have only the time since the stop began.
  shutdown.add("finish the requests in flight", () => drain.finish(), NO_LIMIT);
  shutdown.add("stop watching the configuration", () => reload.close());
  shutdown.add("stop the dashboard", () => dashboard.stop());
  shutdown.add("close the port of the metrics", () => metrics.stop());
  shutdown.add("refuse the requests that wait for a gateway", () => outages.stop());
  shutdown.add("refuse the requests that wait", () => limiter.stop());

  journal.onRefusals((record) => {
    if (tail.isFollowed()) tail.notify(record);
  });
  const rereadKey = async (tool: string) => {
    if (await keyring.reread(tool)) await reload.takeKeys();
  };
  // Also the requests that came while the rest was still being opened.
  port.serve({
    clock,
    log,
    snapshot,
    heads: new HeadCache(hostsOf(port.port)),
    peers,
    tokenUses,
    processLookup,
    projects: () => projects.lookup,
    limiter,
    prices,
    bodies,
    upstream,
    outages,
    inFlight,
    journal,
    keyHealth,
    gatewayHealth,
    otherModels,
    isStopping: () => drain.leftSeconds() !== null,
    isSandbox,
    isFollowed: () => tail.isFollowed(),
    notify: (record) => tail.notify(record),
    metrics: () => metrics.exporter,
    billsAsStreamed: (gateway) => mirror.billsAsStreamed(gateway),
    takesCallIds: (gateway) => mirror.takesCallIds(gateway),
    rereadKey: (tool) => background(rereadKey(tool), log, `reading the key of ${tool} again`),
    checkKey: (tool, gateway, key, cause) =>
      background(services.prober.checkKey(tool, gateway, key, cause), log, `asking about the key of ${tool}`),
  });

  const allowances = createAllowances({
    journal,
    limiter,
    inFlight,
    shared,
    log,
    config: () => snapshot().config,
  });
  const sessions = createSessionControls({
    journal,
    limiter,
    inFlight,
    log,
    config: () => snapshot().config,
    now: () => clock.now(),
  });
  const systemControls =
    paths.mode === "system" ? await createSystemControls(paths, reload, usage) : NO_OWNERS;
  const controls: Controls = {
    log,
    status,
    reload,
    keyring,
    ...systemControls,
    claim: async (tool, { place, origins }) => {
      trust.claim({ name: tool, source: place, origins, home: paths.own });
      // While the sandbox serves, the first start with a config.yaml is still to come.
      if (!isSandbox()) await trust.settle();
    },
    allow: allowances.allow,
    release: allowances.release,
    expectRename: allowances.expectRename,
    cut: allowances.cut,
    sessions: sessions.sessions,
    stopSession: sessions.stopSession,
    liftSession: sessions.liftSession,
    open: (peer) => dashboard.open(peer),
    usage,
    actions,
    tail,
    mirror,
    prober,
    lifecycle,
    notifier,
    confirmations: dashboard.confirmations,
    browsers: dashboard.bookmarks,
    ...createEventControls(events),
  };
  control.serve(controls);
  shutdown.add(
    "stop watching the control socket",
    ticker.every(1, () => background(control.check(), log, "checking the control socket")),
  );

  const lostLock = watchLock(lock, ticker, shutdown).then(async (problem) => {
    log.error(
      `${problem} while keybearer ran, so another one could use the same state folder: this one refuses new requests, lets those in flight finish and exits. find out what changed the folder, then start again → ${advice.run()}`,
    );
    // What is trusted may have vanished with the lock, and without it the next start would trust any config.yaml. This also
    // makes the folder again, so that the requests in flight are recorded.
    if (!isSandbox()) await trust.settle();
    return problem;
  });
  keys.whenLate(() => background(reload.takeKeys(), log, "taking a key that came late"));
  mirror.change(snapshot());
  await reload.addStartWarnings(await services.startLifecycle());
  await dashboard.applyConfig();
  await metrics.applyConfig();
  await reload.watch();
  shutdown.add("stop watching for events", eventWatch.start());
  // Added last, so it is the first step of a stop: no new connection is accepted.
  shutdown.add("close the listener", () => background(port.drain(), log, "waiting for the last connection"));

  let stopped: Promise<void> | null = null;
  const stop = (timeoutMs = snapshot().config.drain) => {
    if (stopped === null) {
      drain.begin(timeoutMs);
      stopped = shutdown.run();
    }
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

type SystemControls = Pick<Controls, "layered" | "copyIndex">;

const notForOwners = () =>
  Promise.reject(new HttpError(409, "this keybearer is no system service: read its files"));

/** A person's own keybearer has no owners. */
const NO_OWNERS: SystemControls = {
  layered: { read: notForOwners, save: notForOwners, forget: notForOwners },
  copyIndex: notForOwners,
};

/** Imported only here: a person's own keybearer needs none of it. */
async function createSystemControls(
  paths: Paths,
  reload: Services["reload"],
  usage: Services["usage"],
): Promise<SystemControls> {
  const { createLayeredConfig } = await import("./layered-config.ts");
  const { createIndexCopy } = await import("./index-copy.ts");
  return {
    layered: createLayeredConfig({
      paths,
      overridden: () => reload.overridden,
      refresh: () => reload.refresh(false),
    }),
    copyIndex: createIndexCopy({ paths, catchUp: () => usage.catchUp() }),
  };
}

/** Resolves with what happened if another daemon could take the lock. */
function watchLock(lock: StateLock, ticker: Ticker, shutdown: Shutdown): Promise<string> {
  return new Promise((resolve) => {
    const check = () => {
      const problem = lock.problem();
      if (problem !== null) resolve(problem);
    };
    shutdown.add("stop watching the lock", ticker.every(1, check));
  });
}
