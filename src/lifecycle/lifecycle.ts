import { randomBytes } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { describeSource, type Gateway, type Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import { errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { isFreeOfKeyShapes } from "../core/redact.ts";
import { Secret } from "../core/secret.ts";
import type { Store } from "../keys/places.ts";
import { ConsoleFault, type KeyActions, type KeySettings } from "../mirror/consoles/console.ts";
import { consoleRemedy } from "../mirror/report/messages.ts";
import type { KeyReport } from "../mirror/report/shape.ts";
import type { Intent, IntentFile, Reason, Successor } from "./intents.ts";
import { Refused } from "./refused.ts";
import type { KeyStorage } from "./storage.ts";

/** Whether a gateway accepts a key. */
export type Probed =
  | { readonly state: "accepted" }
  /** refused: the gateway answered 401. unclear: it did not answer, or answered something else. */
  | { readonly state: "refused" | "unclear"; readonly why: string; readonly next: string };

export interface LifecycleDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly intents: IntentFile;
  /** As long as the sandbox serves, it is another one. */
  readonly storage: () => KeyStorage;
  readonly snapshot: () => Snapshot;
  readonly consoles: Consoles;
  /** @param brief only whether it is accepted; a refusal is not explained */
  readonly probe: (gateway: Gateway, key: Secret, brief: boolean) => Promise<Probed>;
  /** Resolves once no request in flight has this key. */
  readonly whenUnused: (key: Secret, signal: AbortSignal) => Promise<void>;
  /** Rejects when the signal is aborted. */
  readonly pause: (milliseconds: number, signal: AbortSignal) => Promise<void>;
}

/** What the mirror knows of the consoles. Methods throw ConsoleFault. */
export interface Consoles {
  keyActions(gateway: string, account: string | null): Promise<KeyActions>;
  /** The console's keys as they are now, each beside the tools that hold it. */
  listKeys(gateway: string): Promise<readonly KeyReport[]>;
  /** A key was changed: reads the console again. */
  startSync(gateway: string): void;
}

export interface RotateOptions {
  readonly reason: Reason;
  /** Where to keep the new key; null: where the old one is. */
  readonly store: Store | null;
  /** Also rotate a key that is used on other machines, where it stops working. */
  readonly force: boolean;
}

export interface CreateOptions {
  readonly account: string | null;
  readonly settings: KeySettings;
}

export type KeyAction = "disable" | "enable" | "delete";

/** What was changed, with fingerprints of keys. */
export interface KeyChange {
  readonly tool: string;
  readonly old: string | null;
  readonly new: string | null;
  /** retiring: the old key is deleted when the last request with it has ended. */
  readonly state: "done" | "retiring";
}

/** A caller waits this long for the requests that still use the old key. */
const RETIRE_WAIT_MS = 30_000;
/** After a leak, requests in flight may delay the deletion of the old key for no longer. */
const LEAK_PATIENCE_MS = 60_000;
/** A request that began before the switch may still be at finding out whose it is. */
const UNIDENTIFIED_MS = 1000;
/** A gateway that cannot be reached at the moment says nothing about the new key. */
const PROBE_PAUSES_MS = [500, 2000, 5000];
/** new-api v0.13.2 accepts a deleted key for up to a minute. */
const DEAD_PAUSES_MS = [500, 1000, 2000, 4000, 8000, 15_000, 30_000, 30_000];
/** one-api allows no more. */
const MAX_NAME = 30;
/** A creation whose answer was lost may be listed late, and twice. */
const MAX_UNDOS = 5;

/**
 * Creates, rotates and deletes the keys of tools through the consoles of their gateways. Each step is written down before
 * it is taken. After a crash the next start goes on, so that every tool ends with one key that works.
 */
export class KeyLifecycle {
  readonly #deps: LifecycleDeps;
  readonly #stop = new AbortController();
  /** By tool. */
  readonly #running = new Map<string, Promise<void>>();
  /** Why an intent does not go on, by id: logged once. */
  readonly #faults = new Map<string, Fault>();

  constructor(deps: LifecycleDeps) {
    this.#deps = deps;
  }

  /** Goes on with everything that was begun. Called at the start, and then every minute. */
  resume(): void {
    const { intents, log } = this.#deps;
    for (const intent of intents.all()) {
      if (this.#running.has(intent.tool) || this.#stop.signal.aborted) continue;
      background(this.#resumeOne(intent), log, `changing the key of ${intent.tool}`);
    }
  }

  /** What was begun stays written down. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.settled();
  }

  /** Resolves when no change is running. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#running.values());
  }

  /** What is unfinished, for `status`. */
  unfinished(): readonly (Fault & { readonly tool: string })[] {
    return this.#deps.intents.all().flatMap(({ id, tool }) => {
      const fault = this.#faults.get(id);
      return fault === undefined ? [] : [{ tool, ...fault }];
    });
  }

  /** The console's key that a rotation would replace. Throws Refused if there can be no rotation. */
  async rotatable(name: string, options: Pick<RotateOptions, "store" | "force">): Promise<KeyReport> {
    const { tool } = this.#find(name);
    if (tool.watchOnly) throw new Refused(`${name} is watch_only: another program holds its key`);
    if (tool.keysElsewhere && !options.force)
      throw new Refused(
        `the key of ${name} is also used on other machines (keys_elsewhere), and would stop working there`,
        `keybearer tools rotate ${name} --force`,
      );
    if (this.#storage.placeOf(tool) === null && options.store === null && tool.key.kind !== "literal")
      throw new Refused(
        `the key of ${name} comes from ${describeSource(tool.key)}, which keybearer cannot change`,
        `keybearer tools rotate ${name} --store keychain (or file)`,
      );
    return this.#consoleKey(tool);
  }

  async rotate(name: string, options: RotateOptions): Promise<KeyChange> {
    const { clock } = this.#deps;
    const storage = this.#storage;
    const listed = await this.rotatable(name, options);
    const { tool, key } = this.#find(name);
    if (key === null)
      throw new Refused(`${name} has no key that can be used`, `keybearer tools rotate ${name} --manual`);
    const place = storage.placeOf(tool);
    const successor = {
      ...nameFor(name),
      place: await storage.nextPlace(tool, options.store ?? place?.kind ?? "file"),
      settings: { like: listed.ref },
      source_before: describeSource(tool.key),
    };
    const others = this.#otherHolders(tool, key);
    return this.#begin(
      {
        id: newId(),
        tool: name,
        gateway: tool.gateway,
        account: listed.account ?? null,
        reason: options.reason,
        started_at: clock.now(),
        successor,
        // Another tool that has the same key goes on using it.
        old: { ref: others.length > 0 ? null : listed.ref, fingerprint: key.fingerprint, place },
        step: "create",
      },
      key,
    );
  }

  /** Gives a tool of config.yaml its first key, at the place that config.yaml names. */
  async create(name: string, { account, settings }: CreateOptions): Promise<KeyChange> {
    const { clock, consoles } = this.#deps;
    const storage = this.#storage;
    const { tool } = this.#find(name);
    const place = storage.placeOf(tool);
    if (place === null)
      throw new Refused(
        `the key of ${name} comes from ${describeSource(tool.key)}, where keybearer stores none`,
      );
    if ((await storage.read(place)) !== null)
      throw new Refused(`${name} has a key already`, `keybearer tools rotate ${name}`);
    const actions = await consoles.keyActions(tool.gateway, account);
    await checkGroup(actions, settings.group);
    const successor = { ...nameFor(name), place, settings, source_before: describeSource(tool.key) };
    const intent: Intent = {
      id: newId(),
      tool: name,
      gateway: tool.gateway,
      account,
      reason: "asked",
      started_at: clock.now(),
      successor,
      old: null,
      step: "create",
    };
    return this.#begin(intent, null);
  }

  /** Deletes a tool's key at the console, and where keybearer stored it. The tool has none then. */
  async delete(name: string): Promise<KeyChange> {
    const { clock } = this.#deps;
    const storage = this.#storage;
    const { tool, key } = this.#find(name);
    const listed = await this.#consoleKey(tool);
    if (key === null)
      throw new Refused(`the key of ${name} cannot be read, so it is not known which one it is`);
    const [other] = this.#otherHolders(tool, key);
    if (other !== undefined) throw new Refused(`tool ${other} has the same key`);
    const intent: Intent = {
      id: newId(),
      tool: name,
      gateway: tool.gateway,
      account: listed.account ?? null,
      reason: "asked",
      started_at: clock.now(),
      successor: null,
      old: { ref: listed.ref, fingerprint: key.fingerprint, place: storage.placeOf(tool) },
      step: "retire",
    };
    return this.#begin(intent, key);
  }

  /** A tool's key as the console lists it. Throws Refused if it cannot be changed there. */
  async changeable(name: string, action: KeyAction): Promise<KeyReport> {
    const { tool } = this.#find(name);
    const listed = await this.#consoleKey(tool);
    const other = listed.tools.find((each) => each !== name);
    if (other !== undefined && action !== "enable") throw new Refused(`tool ${other} has the same key`);
    // Throws without a login.
    await this.#deps.consoles.keyActions(tool.gateway, listed.account ?? null);
    return listed;
  }

  /** Disables or enables a tool's key at the console. */
  async setEnabled(name: string, enabled: boolean): Promise<KeyReport> {
    const { consoles } = this.#deps;
    const listed = await this.changeable(name, enabled ? "enable" : "disable");
    const actions = await consoles.keyActions(listed.gateway, listed.account ?? null);
    await actions.setEnabled(listed.ref, enabled);
    consoles.startSync(listed.gateway);
    return listed;
  }

  /** A key of the console that no tool holds. */
  async changeUnheld(listed: KeyReport, action: KeyAction): Promise<void> {
    const { consoles } = this.#deps;
    const [tool] = listed.tools;
    if (tool !== undefined) throw new Refused(`tool ${tool} has this key`, heldKeyRemedy(tool, action));
    if (action !== "enable") this.#requireUnheld(listed);
    const actions = await consoles.keyActions(listed.gateway, listed.account ?? null);
    if (action === "delete") await actions.delete(listed.ref);
    else await actions.setEnabled(listed.ref, action === "enable");
    consoles.startSync(listed.gateway);
  }

  /** Writes the intent down and takes its steps. Returns when the tool has its new key, and soon after at the latest. */
  async #begin(intent: Intent, oldKey: Secret | null): Promise<KeyChange> {
    const { tool } = intent;
    if (this.#running.has(tool) || this.#deps.intents.of(tool) !== null)
      throw new Refused(`another change of the key of ${tool} is not finished`, "keybearer status");
    if (this.#stop.signal.aborted) throw new Refused("keybearer is stopping");
    let switched = (_new: string | null): void => {};
    const hasSwitched = new Promise<string | null>((resolve) => {
      switched = resolve;
    });
    const finished = this.#track(tool, async () => {
      await this.#deps.intents.put(intent);
      await this.#advance(intent, { oldKey, switched });
    });
    // A failure before the switch is the caller's. One after it is logged, and the step is taken again.
    const successor =
      intent.successor === null ? null : await Promise.race([hasSwitched, finished.then(() => null)]);
    const ended = finished.then(
      () => true,
      (error) => this.#noteFault(intent, error),
    );
    const isDone = await Promise.race([ended, pause(RETIRE_WAIT_MS, false, { ref: false })]);
    const old = intent.old?.fingerprint ?? null;
    return { tool, old, new: successor, state: isDone ? "done" : "retiring" };
  }

  /** One change of a tool's key at a time. */
  #track(tool: string, work: () => Promise<void>): Promise<void> {
    const running = work().finally(() => this.#running.delete(tool));
    this.#running.set(tool, running);
    return running;
  }

  async #resumeOne(intent: Intent): Promise<void> {
    const storage = this.#storage;
    try {
      await this.#track(intent.tool, async () => {
        const place = intent.old?.place ?? null;
        const oldKey = place === null ? null : await storage.read(place);
        await this.#advance(intent, { oldKey, switched: () => {} });
      });
    } catch (error) {
      this.#noteFault(intent, error);
    }
  }

  /** It is taken up again every minute. */
  #noteFault({ id, tool, gateway }: Intent, error: unknown): false {
    if (this.#stop.signal.aborted) return false;
    const fault = faultOf(error, gateway);
    if (this.#faults.get(id)?.why !== fault.why)
      this.#deps.log.warn({ tool }, `the change of its key is not finished: ${fault.why}`);
    this.#faults.set(id, fault);
    return false;
  }

  async #advance(begun: Intent, run: Run): Promise<void> {
    let intent: Intent | null = begun;
    while (intent !== null) {
      this.#stop.signal.throwIfAborted();
      intent = await this.#take(intent, run);
    }
    this.#faults.delete(begun.id);
    this.#deps.consoles.startSync(begun.gateway);
  }

  /** Takes one step. Returns the intent with its next step; null: it is finished. */
  async #take(intent: Intent, run: Run): Promise<Intent | null> {
    switch (intent.step) {
      case "create":
        return this.#orUndo(intent, () => this.#createKey(intent));
      case "switch":
        await this.#orUndo(intent, () => this.#putIntoUse(intent));
        return this.#checkUse(intent, run);
      case "retire":
        return this.#retire(intent, run);
      case "undo":
        return this.#undo(intent);
    }
  }

  /** If the step fails, the new key is deleted again before the failure is reported. */
  async #orUndo<Done>(intent: Intent, step: () => Promise<Done>): Promise<Done> {
    try {
      return await step();
    } catch (error) {
      if (this.#stop.signal.aborted) throw error;
      const undo: Intent = { ...intent, step: "undo" };
      await this.#deps.intents.put(undo);
      try {
        await this.#undo(undo);
      } catch (later) {
        const { why, next } = faultOf(error, intent.gateway);
        const left = faultOf(later, intent.gateway);
        this.#faults.set(intent.id, left);
        throw new Refused(`${why}; the new key ${nameOf(intent)} will be deleted: ${left.why}`, next);
      }
      throw error;
    }
  }

  /** The new key exists at the console, and is stored here. */
  async #createKey(intent: Intent): Promise<Intent> {
    const { consoles } = this.#deps;
    const storage = this.#storage;
    const { name, place, settings } = successorOf(intent);
    const actions = await consoles.keyActions(intent.gateway, intent.account);
    let key = await storage.read(place);
    if (key === null && actions.takesOwnKeys) {
      // Stored first: from the moment the console knows it, it is never lost.
      key = new Secret(`sk-${randomBytes(32).toString("hex")}`);
      await storage.write(place, key);
    }
    const created = await actions.create({
      name,
      id: intent.id,
      key: actions.takesOwnKeys ? key : null,
      settings,
    });
    if (!actions.takesOwnKeys) await storage.write(place, created.key);
    return this.#goOn(intent, "switch");
  }

  /** The gateway accepts the new key, and config.yaml names it. */
  async #putIntoUse(intent: Intent): Promise<void> {
    const storage = this.#storage;
    const { place, source_before } = successorOf(intent);
    const key = await storage.read(place);
    if (key === null) throw new Refused(`the new key is no longer in ${describeSource(place)}`);
    const { gateway } = this.#find(intent.tool);
    let probed = await this.#deps.probe(gateway, key, false);
    for (const wait of PROBE_PAUSES_MS) {
      if (probed.state !== "unclear") break;
      await this.#pause(wait);
      probed = await this.#deps.probe(gateway, key, false);
    }
    if (probed.state !== "accepted")
      throw new Refused(`the gateway does not accept the new key: ${probed.why}`, probed.next);
    await storage.use(intent.tool, place, source_before);
  }

  /** The old key may go only once the daemon uses the new one. */
  async #checkUse(intent: Intent, { switched }: Run): Promise<Intent | null> {
    const storage = this.#storage;
    const key = await storage.read(successorOf(intent).place);
    const used = this.#find(intent.tool).key;
    if (key === null || used === null || !used.equals(key))
      throw new Refused(
        `config.yaml names the new key of ${intent.tool}, but it is not in force`,
        "keybearer check",
      );
    const { tool, old, reason } = intent;
    this.#deps.log.info(
      { tool, old: old?.fingerprint ?? null, new: key.fingerprint, reason },
      "the tool has a new key",
    );
    const next = old === null ? await this.#finish(intent) : await this.#goOn(intent, "retire");
    switched(key.fingerprint);
    return next;
  }

  /** Deletes the old key at the console once no request uses it, and makes sure that it is dead. */
  async #retire(intent: Intent, { oldKey }: Run): Promise<null> {
    const { consoles, log } = this.#deps;
    const { old, tool, gateway } = intent;
    if (old !== null && old.ref !== null) {
      if (oldKey !== null) await this.#waitUntilUnused(intent, oldKey);
      const actions = await consoles.keyActions(gateway, intent.account);
      await actions.delete(old.ref);
      if (oldKey !== null) await this.#waitUntilDead(intent, oldKey);
      log.info({ tool, old: old.fingerprint }, "the old key is deleted at the console");
    }
    if (old !== null && old.place !== null) await this.#storage.removeUnused(old.place);
    return this.#finish(intent);
  }

  async #waitUntilUnused({ reason, successor }: Intent, key: Secret): Promise<void> {
    // A tool that is removed has no request any more, or they were cut.
    if (successor === null) return;
    await this.#pause(UNIDENTIFIED_MS);
    const patience = reason === "leak" ? [AbortSignal.timeout(LEAK_PATIENCE_MS)] : [];
    const signal = AbortSignal.any([this.#stop.signal, ...patience]);
    await this.#deps.whenUnused(key, signal);
    this.#stop.signal.throwIfAborted();
  }

  async #waitUntilDead(intent: Intent, key: Secret): Promise<void> {
    const gateway = this.#deps.snapshot().config.gateways[intent.gateway];
    if (gateway === undefined) return;
    for (const wait of DEAD_PAUSES_MS) {
      const probed = await this.#deps.probe(gateway, key, true);
      if (probed.state === "refused") return;
      await this.#pause(wait);
    }
    throw new Refused(
      `the console of ${intent.gateway} says that it deleted key ${key.fingerprint}, but the gateway still accepts it`,
      "delete it in the console",
    );
  }

  async #undo(intent: Intent): Promise<null> {
    const { consoles } = this.#deps;
    const storage = this.#storage;
    const { name, place } = successorOf(intent);
    const actions = await consoles.keyActions(intent.gateway, intent.account);
    for (let undone = 0; undone < MAX_UNDOS; undone += 1) {
      const ref = await actions.find(name);
      if (ref === null) break;
      await actions.delete(ref);
    }
    // config.yaml may name the place already, for a tool that was to get its first key. Then the tool has none.
    await storage.remove(place);
    return this.#finish(intent);
  }

  async #goOn(intent: Intent, step: Intent["step"]): Promise<Intent> {
    const next: Intent = { ...intent, step };
    await this.#deps.intents.put(next);
    return next;
  }

  async #finish(intent: Intent): Promise<null> {
    await this.#deps.intents.remove(intent);
    return null;
  }

  #find(name: string): { readonly tool: Tool; readonly gateway: Gateway; readonly key: Secret | null } {
    const snapshot = this.#deps.snapshot();
    const tool = snapshot.config.tools[name];
    if (tool === undefined) throw new Refused(`there is no tool ${name} in config.yaml`, "keybearer tools");
    const key = snapshot.keyOf(tool);
    if (key.state === "needs-trust")
      throw new Refused(`the key of ${name} waits for your confirmation`, `keybearer trust ${name}`);
    return { tool, gateway: snapshot.gatewayOf(tool), key: key.state === "ready" ? key.key : null };
  }

  /** The tool's key as the console lists it. */
  async #consoleKey({ name, gateway }: Tool): Promise<KeyReport> {
    const keys = await this.#deps.consoles.listKeys(gateway);
    const held = keys.filter(({ tools }) => tools.includes(name));
    const [listed] = held;
    if (listed === undefined)
      throw new Refused(
        `the console of ${gateway} does not list the key of ${name}: it may belong to another account`,
        "keybearer keys",
      );
    if (held.length > 1)
      throw new Refused(
        `the console of ${gateway} lists ${held.length} keys that may be the one of ${name}`,
        "keybearer keys",
      );
    return listed;
  }

  /** Throws Refused if one of the tools might have the key. */
  #requireUnheld({ gateway, key }: KeyReport): void {
    if (key === null)
      throw new Refused(
        "the console does not show this key, so it is not known whether a tool has it",
        "change it in the console",
      );
    const snapshot = this.#deps.snapshot();
    for (const tool of Object.values(snapshot.config.tools)) {
      const state = snapshot.keyOf(tool);
      if (tool.gateway !== gateway || state.state === "ready") continue;
      const isAbsent = state.state === "unavailable" && state.absent === true;
      if (!isAbsent)
        throw new Refused(
          `the key of ${tool.name} cannot be read now, and may be this one`,
          "keybearer status",
        );
    }
  }

  #otherHolders({ name, gateway }: Tool, key: Secret): string[] {
    const snapshot = this.#deps.snapshot();
    const others = Object.values(snapshot.config.tools).filter(
      (tool) => tool.name !== name && tool.gateway === gateway,
    );
    return others.flatMap((tool) => {
      const state = snapshot.keyOf(tool);
      return state.state === "ready" && state.key.equals(key) ? [tool.name] : [];
    });
  }

  get #storage(): KeyStorage {
    return this.#deps.storage();
  }

  async #pause(milliseconds: number): Promise<void> {
    await this.#deps.pause(milliseconds, this.#stop.signal);
  }
}

/** Why an intent does not go on. */
interface Fault {
  readonly why: string;
  /** What to type; null: nothing helps but to wait. */
  readonly next: string | null;
}

/** What one run of an intent knows beside it. */
interface Run {
  /** null: unknown, or there is none. */
  readonly oldKey: Secret | null;
  /** Called with the new key's fingerprint when the tool uses it. */
  readonly switched: (fingerprint: string) => void;
}

function successorOf({ successor }: Intent): Successor {
  if (successor === null) throw new Error("this change has no new key");
  return successor;
}

/** What to type for a key that a tool has. */
export function heldKeyRemedy(tool: string, action: KeyAction): string {
  if (action !== "delete") return `keybearer tools ${action} ${tool} --at-gateway`;
  return `keybearer tools rotate ${tool}, or keybearer tools remove ${tool} --at-gateway`;
}

function nameOf({ successor }: Intent): string {
  return successor?.name ?? "";
}

function faultOf(error: unknown, gateway: string): Fault {
  const message = errorMessage(error);
  // Its message continues a sentence.
  if (error instanceof ConsoleFault)
    return { why: `the console of ${gateway} ${message}`, next: consoleRemedy(error, gateway) };
  return { why: message, next: error instanceof Refused ? error.next : null };
}

async function checkGroup(actions: KeyActions, group: string | null): Promise<void> {
  const groups = group === null ? null : await actions.groups();
  if (group === null || groups === null || groups.includes(group)) return;
  throw new ConsoleFault("refused", `has no group ${group} for this account; it has ${groups.join(", ")}`);
}

/** codex-k3v9x2: unique at the console, and short enough for every one. */
function nameFor(tool: string): { readonly name: string } {
  const random = randomBytes(4).readUInt32BE().toString(36).padStart(7, "0");
  const base = tool.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const name = `${base.slice(0, MAX_NAME - random.length - 1)}-${random}`;
  // For a tool called hf or sk it would look like a credential, and be hidden wherever it is shown.
  return { name: isFreeOfKeyShapes(name) ? name : name.replaceAll("-", "") };
}

function newId(): string {
  return `keybearer-${randomBytes(16).toString("hex")}`;
}
