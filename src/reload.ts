import { dirname } from "node:path";
import type { Clock } from "./clock.ts";
import { changesInWords, needsRestart } from "./config/changes.ts";
import { type Loaded, loadConfig } from "./config/load.ts";
import type { Problem } from "./config/problem.ts";
import type { Config } from "./config/shape.ts";
import { createSnapshot, type Snapshot } from "./config/snapshot.ts";
import { createFileWatch, type FileWatch } from "./config/watch.ts";
import type { Keyring, Want } from "./keys/keyring.ts";
import type { Trust } from "./keys/trust.ts";
import type { Logger } from "./logger.ts";
import type { Places } from "./places.ts";

/**
 * The configuration in force and how it changes: watch → parse → references → trust → keys → changes in words → swap.
 * A file that is bad, empty, half-written or gone changes nothing.
 */
export interface Reload {
  snapshot(): Snapshot;
  /** What is wrong with the file as it is now, while the last good one serves. Empty when they are the same. */
  problems(): readonly Problem[];
  /** When the snapshot in force was made. */
  loadedAt(): number;
  /** Looks at the file; with `force`, reads every key again even if the text is the same. Resolves when applied. */
  refresh(force: boolean): Promise<void>;
  /** Puts what the keyring holds now into force: a key came late, was read again, or was trusted. */
  takeKeys(): void;
  watch(): Promise<void>;
  close(): Promise<void>;
}

export interface ReloadMeans {
  readonly places: Places;
  readonly clock: Clock;
  readonly log: Logger;
  readonly keyring: Keyring;
  readonly trust: Trust;
  /** The snapshot to begin with, and the text it came from; a null text is the sandbox's. */
  readonly first: { readonly snapshot: Snapshot; readonly text: string | null };
  readonly onSwap: (from: Snapshot, to: Snapshot) => void;
}

/** A save must be in force within a second; a key that takes longer to fetch follows by itself. */
const KEY_PATIENCE_MS = 400;

export function createReload(means: ReloadMeans): Reload {
  const { places, log, keyring, trust } = means;
  let snapshot = means.first.snapshot;
  let activeText = means.first.text;
  let lastSeen = activeText;
  let loadedAt = means.clock.now();
  let problems: readonly Problem[] = [];
  let queue: Promise<void> = Promise.resolve();

  function swap(config: Config, keys: ReturnType<Keyring["current"]>, warnings: readonly Problem[]): void {
    const from = snapshot;
    const to = createSnapshot(from.revision + 1, config, keys, warnings);
    snapshot = to;
    loadedAt = means.clock.now();
    const changes = changesInWords(from, to);
    for (const change of changes) log.info({ revision: to.revision }, change);
    for (const restart of needsRestart(from.config, to.config)) log.warn(restart);
    means.onSwap(from, to);
  }

  async function apply(loaded: Loaded, config: Config): Promise<void> {
    const keys = await keyring.resolve(wantsOf(config, places), KEY_PATIENCE_MS);
    const { problem } = await trust.settle();
    if (problem !== null) log.error(problem);
    problems = [];
    activeText = loaded.text;
    swap(config, keys, loaded.problems);
    follow(config);
    log.info({ revision: snapshot.revision, file: places.config }, "configuration loaded");
  }

  async function look(force: boolean): Promise<void> {
    const loaded = await loadConfig(places.config, { home: places.home, strict: true });
    const unchanged = loaded.text !== null && loaded.text === activeText;
    if (!force && unchanged && loaded.config !== null) {
      if (problems.length > 0) log.info("config.yaml is again the one in force");
      problems = [];
      lastSeen = loaded.text;
      return;
    }
    if (loaded.config !== null) {
      lastSeen = loaded.text;
      return apply(loaded, loaded.config);
    }
    // While the sandbox serves, a file that is not there is no problem.
    if (!loaded.found && activeText === null) return;
    const news = loaded.text !== lastSeen || problems.length === 0;
    lastSeen = loaded.text;
    problems = loaded.problems;
    if (news) report(loaded.problems, log);
  }

  const watcher: FileWatch = createFileWatch({
    // A watched key file changed when it is not config.yaml: the text is the same, the keys are not.
    onChange: (path) => void reload.refresh(path !== places.config),
    onError: (why) => log.warn(`changes are noticed by looking every second only: ${why}`),
  });

  function follow(config: Config): void {
    const files = Object.values(config.tools).flatMap(({ key }) => (key.kind === "file" ? [key.path] : []));
    watcher.follow([places.config, ...files]);
  }

  const reload: Reload = {
    snapshot: () => snapshot,
    problems: () => problems,
    loadedAt: () => loadedAt,
    refresh(force) {
      queue = queue.then(() => look(force)).catch((error) => log.error({ err: error }, "reload failed"));
      return queue;
    },
    takeKeys() {
      if (activeText !== null) swap(snapshot.config, keyring.current(), snapshot.warnings);
    },
    async watch() {
      follow(snapshot.config);
      await watcher.ready();
      // Whatever was saved while the watch was set up.
      await reload.refresh(false);
    },
    close: () => watcher.close(),
  };
  return reload;
}

function report(problems: readonly Problem[], log: Logger): void {
  const count = problems.filter((problem) => problem.severity === "error").length;
  log.error(
    `config.yaml has ${count} problem${count === 1 ? "" : "s"}; the last good one serves → keybearer check`,
  );
  for (const { severity, line, column, path, message } of problems.slice(0, 20)) {
    log[severity === "error" ? "error" : "warn"]({ line, column, path }, message);
  }
}

/** What the keyring must fetch for a configuration. */
export function wantsOf(config: Config, places: Places): Want[] {
  const variables = Object.values(config.tools).flatMap(({ key }) => (key.kind === "env" ? [key.name] : []));
  const home = [dirname(places.config), places.state];
  return Object.values(config.tools).map((tool) => {
    const gateway = config.gateways[tool.gateway];
    const addresses = gateway === undefined ? [] : [gateway.baseUrl, gateway.messagesUrl];
    const origins = [...new Set(addresses.map((address) => new URL(address).origin))];
    return { name: tool.name, source: tool.key, origins, home, withhold: variables };
  });
}
