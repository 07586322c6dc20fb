import type { DestinationStream } from "pino";
import { type Clock, systemClock } from "./clock.ts";
import { type Loaded, loadConfig } from "./config/load.ts";
import { problemsInWords } from "./config/problem.ts";
import type { Listen } from "./config/shape.ts";
import { createSnapshot, type Snapshot } from "./config/snapshot.ts";
import { type ControlServer, createControlServer } from "./control/server.ts";
import { type Status, statusOf } from "./control/status.ts";
import { createTrusting } from "./control/trusting.ts";
import { portOwner } from "./identity/port-owner.ts";
import { createKeyring } from "./keys/keyring.ts";
import { createTrust } from "./keys/trust.ts";
import { createLogger, type Logger } from "./logger.ts";
import { type Places, prepareFolders } from "./places.ts";
import { createAgents } from "./proxy/agents.ts";
import { createForwarder } from "./proxy/forward.ts";
import { type HandleMeans, handle } from "./proxy/handle.ts";
import { handleUpgrade } from "./proxy/handle-upgrade.ts";
import { hostsOf, openPort, type Port, PortTaken } from "./proxy/server.ts";
import { createStandings } from "./proxy/standing.ts";
import { createReload, wantsOf } from "./reload.ts";
import { createSandbox, type Sandbox } from "./sandbox/sandbox.ts";
import { sandboxSetup } from "./sandbox-config.ts";
import { EXIT, StartFailure } from "./start-failure.ts";
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
  /** Set while the sandbox serves: what to paste. */
  readonly sandbox: { readonly token: string; readonly model: string; readonly gateway: Sandbox } | null;
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
/** How long what began on the sandbox may go on there once a config.yaml has ended it. */
const SANDBOX_LINGER_MS = 10_000;

/** The one place where everything is made and put together. */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { places, env, clock = systemClock } = options;
  const startedAt = clock.elapsed();
  const trust = createTrust({ file: places.trust, clock });
  const keyring = createKeyring({ trust, env, clock, onLate: () => takeLateKeys() });
  // A key may arrive before there is anything to put it into.
  let takeLateKeys = (): void => {
    lateKeys = true;
  };
  let lateKeys = false;
  const log = createLogger({
    level: "info",
    destination: options.logTo,
    forPeople: options.logForPeople ?? false,
    secrets: () => keyring.secrets(),
  });

  const loaded = await firstLoad(places);
  const standings = createStandings(clock);
  const control = createControlServer(places.socket);
  await claim(control, places);

  const { problem } = await trust.load();
  if (problem !== null) log.error(problem);
  const sandbox = loaded.config === null ? createSandbox({ clock }) : null;
  await sandbox?.start();
  const setup = sandbox === null ? null : sandboxSetup(sandbox, options.sandboxListen);
  const first = setup?.snapshot ?? (await firstSnapshot(loaded));
  log.level = first.config.log.level;

  const agents = createAgents();
  let stopping = false;
  let onSandbox = sandbox !== null;

  const reload = createReload({
    places,
    clock,
    log,
    keyring,
    trust,
    first: { snapshot: first, text: loaded.text },
    onSwap(_from, to) {
      log.level = to.config.log.level;
      agents.keepOnly(Object.values(to.config.gateways));
      if (onSandbox) void endSandbox();
    },
  });

  takeLateKeys = reload.takeKeys;
  if (lateKeys) reload.takeKeys();

  const means: HandleMeans = {
    clock,
    log,
    standings,
    snapshot: reload.snapshot,
    forwarder: createForwarder(clock),
    agents,
    hosts: () => hosts,
    stopping: () => stopping,
    sandbox: () => onSandbox,
    rereadKey: (tool) => {
      if (onSandbox) return;
      void keyring.reread(tool).then((changed) => changed && reload.takeKeys());
    },
  };
  const port = await bindPort(first.config.listen, means).catch(async (error) => {
    await Promise.all([sandbox?.stop(), control.close()]);
    throw error;
  });
  const hosts = hostsOf(port.port);
  const trusting = createTrusting({
    snapshot: reload.snapshot,
    async grant(tool, seen) {
      const answer = await keyring.grant(tool, seen);
      reload.takeKeys();
      return answer;
    },
    log,
  });
  control.serve({ status, ...trusting });
  await reload.watch();

  function status(): Promise<Status> {
    return statusOf({
      version: version(),
      uptime: clock.elapsed() - startedAt,
      now: clock.now(),
      listen: port.addresses,
      sandbox: onSandbox,
      configPath: places.config,
      loadedAt: reload.loadedAt(),
      snapshot: reload.snapshot(),
      problems: reload.problems(),
      standings,
    });
  }

  async function firstSnapshot({ config, problems }: Loaded): Promise<Snapshot> {
    if (config === null) throw new StartFailure(EXIT.badConfig, problemsInWords(places.config, problems));
    const keys = await keyring.resolve(wantsOf(config, places), FIRST_KEYS_MS);
    const settled = await trust.settle();
    if (settled.problem !== null) log.error(settled.problem);
    for (const { path, message } of problems) log.warn({ path }, message);
    return createSnapshot(1, config, keys, problems);
  }

  async function endSandbox(): Promise<void> {
    onSandbox = false;
    log.info("a config.yaml is there: the sandbox ends");
    const deadline = clock.elapsed() + SANDBOX_LINGER_MS;
    while (sandbox !== null && sandbox.openSockets > 0 && clock.elapsed() < deadline && !stopping) {
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    await sandbox?.stop();
  }

  return {
    port: port.port,
    addresses: port.addresses,
    sandbox:
      setup === null || sandbox === null
        ? null
        : { token: setup.token, model: setup.model, gateway: sandbox },
    log,
    snapshot: reload.snapshot,
    status,
    reload: () => reload.refresh(true),
    async stop(patienceMs = DRAIN_MS) {
      stopping = true;
      const timer = setTimeout(() => port.cut(), patienceMs);
      await port.drain();
      clearTimeout(timer);
      await Promise.all([reload.close(), sandbox?.stop(), control.close()]);
      agents.close();
    },
    cut: () => port.cut(),
  };
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

async function bindPort(listen: Listen, means: HandleMeans): Promise<Port> {
  const failed = (error: unknown) => means.log.error({ err: error }, "a request failed inside keybearer");
  try {
    return await openPort(listen, {
      request: (req, res) =>
        void handle(req, res, means).catch((error) => {
          failed(error);
          res.destroy();
        }),
      upgrade: (req, socket, head) =>
        void handleUpgrade(req, socket, head, means).catch((error) => {
          failed(error);
          socket.destroy();
        }),
    });
  } catch (error) {
    if (!(error instanceof PortTaken)) throw error;
    const owner = await portOwner(error.port);
    const by = owner === null ? "by another program" : `by ${owner.program} (pid ${owner.pid})`;
    throw new StartFailure(
      EXIT.portTaken,
      `${error.address} is taken ${by}. stop it, or change listen in config.yaml`,
    );
  }
}
