import { isDeepStrictEqual } from "node:util";
import { describeChanges, needsRestart } from "../config/changes.ts";
import { type Loaded, loadConfig } from "../config/load.ts";
import { type ConfigProblem, problemInLine, warning } from "../config/problems.ts";
import { type Config, describeSource, type Gateway, type Notify, type Webhook } from "../config/schema.ts";
import {
  consoleSecretName,
  consoleSources,
  listDestinations,
  NOTIFY_COMMAND,
  SHARED_PASSWORD,
  SHARED_SECRET,
  Snapshot,
  secretSources,
  storeDestinations,
  webhookSecretName,
  webhookSources,
} from "../config/snapshot.ts";
import { FileWatch } from "../config/watch.ts";
import { joinPath } from "../config/yaml.ts";
import { advice } from "../core/advice.ts";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Paths } from "../core/paths.ts";
import { Secret } from "../core/secret.ts";
import type { Ticker } from "../core/ticker.ts";
import type { Keyring, WantedKey } from "../keys/keyring.ts";
import type { Settled, Trust } from "../keys/trust.ts";

interface ReloadDeps {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly ticker: Ticker;
  readonly log: Logger;
  readonly keyring: Keyring;
  readonly trust: Trust;
  /** What the daemon started with. */
  readonly initial: {
    readonly loaded: Loaded;
    readonly snapshot: Snapshot;
    /** Warnings about config.yaml; none while the sandbox serves. */
    readonly fileWarnings: readonly ConfigProblem[];
    readonly settled: Settled;
    /** Warnings that last until the next start. */
    readonly startWarnings: readonly ConfigProblem[];
  };
}

type KeyStates = ReturnType<Keyring["current"]>;

/** A save must be in force within a second. A key that takes longer to fetch follows later. */
const KEY_TIMEOUT_MS = 400;

/**
 * The configuration in force and how it changes: watch → parse → references → trust → keys → changes in words → swap.
 * A file that is bad, empty, half-written or gone changes nothing.
 */
export class Reload {
  readonly #deps: ReloadDeps;
  readonly #watch: FileWatch;
  #snapshot: Snapshot;
  #activeText: string | null;
  /** The text of the last check, so that a bad file is reported once. */
  #seenText: string | null;
  #loadedAt: number;
  #loaded: Loaded;
  #problems: readonly ConfigProblem[] = [];
  #fileWarnings: readonly ConfigProblem[];
  #startWarnings: readonly ConfigProblem[];
  #trustProblem: string | null;
  /** No key is used until what is trusted can be written down. */
  #keysBlocked: boolean;
  #queue: Promise<void> = Promise.resolve();
  #onChange: (from: Snapshot, to: Snapshot) => void = () => {};

  constructor(deps: ReloadDeps) {
    this.#deps = deps;
    this.#loaded = deps.initial.loaded;
    this.#snapshot = deps.initial.snapshot;
    this.#activeText = deps.initial.loaded.text;
    this.#seenText = deps.initial.loaded.text;
    this.#fileWarnings = deps.initial.fileWarnings;
    this.#startWarnings = deps.initial.startWarnings;
    this.#loadedAt = deps.clock.now();
    this.#trustProblem = deps.initial.settled.problem;
    this.#keysBlocked = deps.initial.settled.blocksKeys;
    this.#watch = new FileWatch({
      ticker: deps.ticker,
      log: deps.log,
      onChange: (path) => {
        const { config, overrides } = deps.paths;
        const taken = path === config || path === overrides ? this.refresh(false) : this.#takeKeyFile(path);
        background(taken, deps.log, `reading ${path} again`);
      },
    });
  }

  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  /** What is wrong with the file as it is now, while the last good one serves. Empty when it is the one in force. */
  get problems(): readonly ConfigProblem[] {
    return this.#problems;
  }

  /** The settings of the system service that do not come from root's config.yaml. */
  get overridden(): readonly string[] {
    return this.#loaded.overridden;
  }

  /** When the snapshot in force was made. */
  get loadedAt(): number {
    return this.#loadedAt;
  }

  /** Something went wrong at the start, and is shown until the next one. */
  async addStartWarnings(messages: readonly string[]): Promise<void> {
    if (messages.length === 0) return;
    this.#startWarnings = [...this.#startWarnings, ...messages.map((message) => warning("", message))];
    await this.takeKeys();
  }

  /** Called after each swap. There is one listener, set before watch(). */
  onChange(listener: (from: Snapshot, to: Snapshot) => void): void {
    this.#onChange = listener;
  }

  /** Reads the file; with `force`, reads every key again even if the text is the same. Resolves when applied. */
  refresh(force: boolean): Promise<void> {
    return this.#inTurn(() => this.#check(force));
  }

  /** Puts what the keyring holds now into force: a key came late, was read again, or was trusted. */
  takeKeys(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#activeText === null) return;
      const keys = await this.#settleTrust(this.#deps.keyring.current());
      this.#swap(this.#snapshot.config, keys);
    });
  }

  /** The same for the sandbox, whose keys are in no source. */
  replaceKeys(keys: KeyStates): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#activeText === null) this.#swap(this.#snapshot.config, keys);
    });
  }

  async #takeKeyFile(path: string): Promise<void> {
    await this.#deps.keyring.rereadAt({ kind: "file", path });
    await this.takeKeys();
  }

  async watch(): Promise<void> {
    this.#deps.ticker.every(1, () => {
      if (this.#keysBlocked) background(this.takeKeys(), this.#deps.log, "writing down what is trusted");
    });
    this.#follow(this.#snapshot.config);
    await this.#watch.ready();
    // The file may have been saved while the watch was set up.
    await this.refresh(false);
  }

  close(): Promise<void> {
    return this.#watch.close();
  }

  /** One change at a time: states of keys belong to the configuration they were read for. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    const failed = (error: unknown) =>
      this.#deps.log.error({ err: error }, "could not reload the configuration");
    this.#queue = this.#queue.then(work).catch(failed);
    return this.#queue;
  }

  async #check(force: boolean): Promise<void> {
    const { paths, log } = this.#deps;
    const before = this.#loaded;
    const { home, mode, overrides } = paths;
    const loaded = await loadConfig(paths.config, { home, mode, overrides, strict: true, before });
    this.#loaded = loaded;
    const { text, config } = loaded;
    if (config === null) return this.#keepLastGood(loaded);
    this.#seenText = text;
    if (text !== this.#activeText || force) return this.#apply(text, config, loaded.problems);
    if (this.#problems.length > 0) log.info("config.yaml is valid again and unchanged");
    this.#problems = [];
    // The same text with another mode: others can read it now, or no longer can.
    const warnings = this.#fileWarnings;
    this.#fileWarnings = loaded.problems;
    if (!isDeepStrictEqual(warnings, loaded.problems))
      this.#swap(this.#snapshot.config, await this.#settleTrust(this.#deps.keyring.current()));
  }

  #keepLastGood(loaded: Loaded): void {
    // While the sandbox serves, a missing file is fine.
    if (!loaded.found && this.#activeText === null) return;
    const news = loaded.text !== this.#seenText || this.#problems.length === 0;
    this.#seenText = loaded.text;
    this.#problems = loaded.problems;
    if (news) reportProblems(loaded.problems, this.#deps);
  }

  async #apply(text: string | null, config: Config, warnings: readonly ConfigProblem[]): Promise<void> {
    const { keyring, log, paths } = this.#deps;
    const found = await keyring.resolve(wantedKeys(config, paths), KEY_TIMEOUT_MS);
    const keys = await this.#settleTrust(found);
    this.#problems = [];
    this.#fileWarnings = warnings;
    this.#activeText = text;
    this.#swap(config, keys);
    this.#follow(config);
    log.info({ revision: this.#snapshot.revision }, "configuration loaded");
  }

  /** Pins are written down before the keys they let through are used. Answers what may be used of these keys. */
  async #settleTrust(keys: KeyStates): Promise<KeyStates> {
    const settled = await this.#deps.trust.settle();
    if (settled.problem !== null && settled.problem !== this.#trustProblem)
      this.#deps.log.error(settled.problem);
    this.#trustProblem = settled.problem;
    this.#keysBlocked = settled.blocksKeys;
    return usableKeys(keys, settled);
  }

  #swap(config: Config, keys: KeyStates): void {
    const { log, clock, keyring } = this.#deps;
    const from = this.#snapshot;
    // Compared with the configuration of the start, not with the last save, so that the warning stays until the restart.
    const restart = needsRestart(this.#deps.initial.snapshot.config, config).map(({ path, message }) =>
      warning(path, message),
    );
    const warnings = [
      ...this.#startWarnings,
      ...trustWarnings(this.#deps.trust),
      ...this.#fileWarnings,
      ...keyWarnings(keyring),
      ...restart,
    ];
    const to = new Snapshot(from.revision + 1, config, keys, warnings);
    this.#snapshot = to;
    this.#loadedAt = clock.now();
    // The listener sets the log level. The changes are logged at the more verbose of the two levels.
    const quieter = isQuieter(log, from.config.log.level, to.config.log.level);
    if (quieter) logChanges(from, to, log);
    this.#onChange(from, to);
    if (!quieter) logChanges(from, to, log);
  }

  #follow(config: Config): void {
    const files = secretSources(config).flatMap((source) => (source.kind === "file" ? [source.path] : []));
    const { config: file, overrides } = this.#deps.paths;
    this.#watch.follow([file, ...(overrides === null ? [] : [overrides]), ...files]);
  }
}

/** The keys, or why they cannot be used yet. */
export function usableKeys(keys: KeyStates, { problem, blocksKeys }: Settled): KeyStates {
  if (!blocksKeys || problem === null) return keys;
  const blocked = { state: "unavailable", problem, next: null } as const;
  return new Map([...keys].map(([name, key]) => [name, key.state === "ready" ? blocked : key]));
}

function logChanges(from: Snapshot, to: Snapshot, log: Logger): void {
  for (const change of describeChanges(from, to)) log.info({ revision: to.revision }, change);
  for (const { path, message } of needsRestart(from.config, to.config)) log.warn({ path }, message);
}

function isQuieter(log: Logger, from: string, to: string): boolean {
  const { values } = log.levels;
  return (values[to] ?? 0) > (values[from] ?? 0);
}

function reportProblems(problems: readonly ConfigProblem[], { log, paths }: ReloadDeps): void {
  const count = problems.filter((problem) => problem.severity === "error").length;
  const check = paths.explicit ? advice.check(paths.config) : advice.check();
  log.error(
    `config.yaml has ${count} problem${count === 1 ? "" : "s"}; keybearer keeps using the last valid version → ${check}`,
  );
  for (const problem of problems.slice(0, 20)) {
    const { severity, line, column, path } = problem;
    log[severity === "error" ? "error" : "warn"]({ line, column, path }, problemInLine(problem));
  }
}

/** What a person should correct although the key works. */
export function keyWarnings(keyring: Keyring): ConfigProblem[] {
  return keyring.warnings().map(({ path, message }) => warning(path, message));
}

/** Stays until a person has confirmed where the keys go. */
export function trustWarnings(trust: Trust): ConfigProblem[] {
  const problem = trust.problem();
  return problem === null ? [] : [warning("", problem)];
}

/** Everything that sees a key of this gateway's tools. */
export function gatewayDestinations(gateway: Gateway): readonly string[] {
  return listDestinations(gateway, [gateway.baseUrl, gateway.messagesUrl]);
}

/** What the keyring must fetch for a configuration. */
export function wantedKeys(config: Config, paths: Paths): WantedKey[] {
  const variables = secretSources(config).flatMap((source) => (source.kind === "env" ? [source.name] : []));
  const common = { home: paths.own, notKeys: paths.notKeys, withhold: variables };
  const tools = Object.values(config.tools).map((tool) => {
    const gateway = config.gateways[tool.gateway];
    const origins = gateway === undefined ? [] : gatewayDestinations(gateway);
    const path = `${joinPath("tools", tool.name)}.key`;
    return { ...common, name: tool.name, path, source: tool.key, origins };
  });
  const consoles = Object.values(config.gateways).flatMap((gateway) =>
    consoleSources(gateway).map(({ account, secret, source }) => ({
      ...common,
      name: consoleSecretName(gateway.name, account, secret),
      path: `${joinPath("gateways", gateway.name)}.console.login.${secret}`,
      source,
      origins: listDestinations(gateway, [gateway.console?.url ?? gateway.baseUrl]),
      password: secret === "password",
      secret: `the console's ${secret.replace("_", " ")} of ${account === null ? "" : `account ${account} at `}${gateway.name}`,
    })),
  );
  return [
    ...tools,
    ...consoles,
    ...wantedSharedSecrets(config, common),
    ...wantedNotifySecrets(config.notify, common),
  ];
}

/**
 * Where a webhook's address leads is known once it is read, and pinned then, with the recipient. What signs its messages
 * belongs to the webhook, whose address is pinned.
 */
function wantedNotifySecrets({ webhooks, command }: Notify, common: CommonWants): WantedKey[] {
  const wanted: WantedKey[] = Object.values(webhooks).flatMap((webhook) =>
    webhookSources(webhook).map(({ secret, source }) => ({
      ...common,
      name: webhookSecretName(webhook.name, secret),
      path: `${joinPath("notify.webhooks", webhook.name)}.${secret}`,
      source,
      origins: secret === "url" ? addressDestinations(webhook) : secretDestinations(webhook),
      isAddress: secret === "url",
      password: true,
      secret: `the ${secret === "url" ? "address" : "secret"} of webhook ${webhook.name}`,
    })),
  );
  if (command !== null)
    wanted.push({
      ...common,
      name: NOTIFY_COMMAND,
      path: "notify.command",
      source: { kind: "command", argv: command },
      origins: ["every event"],
      isReceiver: true,
    });
  return wanted;
}

/** A recipient may be a secret, and pins are shown. */
function addressDestinations(webhook: Webhook): readonly string[] {
  const { to } = webhook;
  const destinations = listDestinations(webhook, []);
  if (to !== null) destinations.push(`recipient ${new Secret(to).digest("recipient").slice(0, 32)}`);
  return destinations;
}

/** ntfy is sent the secret itself. Where an address leads that is not written here, its own pin says. */
function secretDestinations({ name, kind, url }: Webhook): readonly string[] {
  const destinations = [`webhook ${name}`];
  if (kind !== "ntfy") return destinations;
  const origin = url.kind === "literal" ? url.secret.origin() : `the address in ${describeSource(url)}`;
  return origin === null ? destinations : [...destinations, origin];
}

type CommonWants = Pick<WantedKey, "home" | "notKeys" | "withhold">;

/** Both are for one store. The secret is never sent; but a program that sees a signature may try to guess what signed it. */
function wantedSharedSecrets({ shared }: Config, common: CommonWants): WantedKey[] {
  if (shared === null) return [];
  const origins = storeDestinations(shared.store);
  const wanted: WantedKey[] = [];
  if (shared.store.password !== null)
    wanted.push({
      ...common,
      name: SHARED_PASSWORD,
      path: "shared.store.password",
      source: shared.store.password,
      origins,
      password: true,
      secret: "the password of the shared store",
    });
  if (shared.secret !== null)
    wanted.push({
      ...common,
      name: SHARED_SECRET,
      path: "shared.secret",
      source: shared.secret,
      origins,
      secret: "the secret of the shared store",
    });
  return wanted;
}
