import { randomBytes } from "node:crypto";
import { describeSource, isSameSource, type Tool } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import { background } from "../core/background.ts";
import type { Problem } from "../core/display.ts";
import { isFreeOfKeyShapes } from "../core/redact.ts";
import type { Secret } from "../core/secret.ts";
import { withTimeout } from "../core/timeout.ts";
import type { KeyPlace, Store } from "../keys/stored-keys.ts";
import { ConsoleError, type KeyActions, type KeySettings } from "../mirror/consoles/console.ts";
import type { KeyReport } from "../mirror/report/shape.ts";
import type { Intent, ListedKey, OldKey, Reason, Successor } from "./intents.ts";
import { heldKeyRemedy, type KeyAction } from "./key-action.ts";
import { Refused } from "./refused.ts";
import { endedText, type RotatableKey, renewedSettings } from "./renewal.ts";
import { explainError, findTool, type LifecycleDeps, type Run, Steps } from "./steps.ts";
import type { KeyStorage } from "./storage.ts";

export interface RotateOptions {
  readonly reason: Reason;
  /** Where to keep the new key; null: where the old one is. */
  readonly store: Store | null;
  /** Also rotate a key that is used on other machines, where it stops working. */
  readonly force: boolean;
  /** A person agreed to a new expiry or quota, where that of the old key is over. */
  readonly renew: boolean;
}

export interface CreateOptions {
  readonly account: string | null;
  readonly settings: KeySettings;
}

interface ChangePlan extends Pick<Intent, "account" | "reason" | "old"> {
  /** null: the tool gets no new key. */
  readonly into: Pick<Successor, "place" | "settings"> | null;
}

/** What was changed, with fingerprints of keys. */
export interface KeyChange {
  readonly tool: string;
  readonly old: string | null;
  readonly new: string | null;
  /** retiring: the old key is deleted when the last request with it has ended. kept: another tool has it. */
  readonly state: "done" | "retiring" | "kept";
  /** Why the old key could not be deleted yet; null: it is deleted, or requests still use it. */
  readonly why: string | null;
}

/** A change that does not go on, and what to type; no next step: nothing helps but to wait. */
export interface UnfinishedChange extends Problem {
  readonly tool: string;
}

/** A caller waits this long for the requests that still use the old key. */
const RETIRE_WAIT_MS = 30_000;
/** one-api allows no more. */
const MAX_NAME = 30;
/** The random part of a name. */
const RANDOM_LENGTH = 7;

/**
 * Creates, rotates and deletes the keys of tools through the consoles of their gateways. Each step is written down before
 * it is taken. After a crash the next start goes on, so that every tool ends with one key that works.
 */
export class KeyLifecycle {
  readonly #deps: LifecycleDeps;
  readonly #stop = new AbortController();
  /** By tool. */
  readonly #inFlight = new Map<string, Promise<void>>();
  /** Why an intent does not go on, by id: logged once. */
  readonly #problems = new Map<string, Problem>();
  readonly #steps: Steps;
  /** The ids of the changes that this process began. Others were read from a file. */
  readonly #begunHere = new Set<string>();

  constructor(deps: LifecycleDeps) {
    this.#deps = deps;
    this.#steps = new Steps(deps, this.#stop.signal, ({ id }, problem) => this.#problems.set(id, problem));
  }

  /** Goes on with everything that was begun. Called at the start, and then every minute. */
  resume(): void {
    const { intents, log } = this.#deps;
    for (const intent of intents.all()) {
      if (this.#inFlight.has(intent.tool) || this.#stop.signal.aborted) continue;
      background(this.#resumeOne(intent), log, `changing the key of ${intent.tool}`);
    }
  }

  /** Takes no further step. What was begun stays written down. */
  stop(): void {
    this.#stop.abort();
  }

  /** Resolves when no change is in flight. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#inFlight.values());
  }

  /** What is unfinished, for `status`. */
  unfinished(): readonly UnfinishedChange[] {
    return this.#deps.intents.all().flatMap(({ id, tool, step, old }) => {
      const found = this.#problems.get(id);
      if (found !== undefined) return [{ tool, problem: found.problem, next: found.next }];
      // The other steps take seconds.
      if (step !== "retire") return [];
      const problem = `waits until no request uses the old key ${old?.fingerprint}, and the gateway refuses it`;
      return [{ tool, problem, next: null }];
    });
  }

  /** Whether an unfinished change makes this key of a console, or replaces it. */
  isChanging(key: ListedKey): boolean {
    return this.#deps.intents.changing(key) !== null;
  }

  /** Throws Refused or ConsoleError if there can be no rotation. */
  async rotatable(
    name: string,
    options: Pick<RotateOptions, "store" | "force"> & Partial<Pick<RotateOptions, "reason">>,
  ): Promise<RotatableKey> {
    const { consoles } = this.#deps;
    const { tool, key } = findTool(this.#deps.snapshot(), name);
    if (tool.keysElsewhere && !options.force)
      throw new Refused(
        `the key of ${name} is also used on other machines (keys_elsewhere), and would stop working there`,
        advice.rotateAnyway(name),
      );
    // A leaked key is rotated anyway: a thief can spend as long as it exists.
    const isAllowed = options.force || options.reason === "leak";
    const users = key === null || isAllowed ? [] : this.#deps.siblings.findUsers(key.fingerprint);
    if (users.length > 0)
      throw new Refused(
        `the key of ${name} is also used on ${users.join(", ")}, and would stop working there: each machine needs its own key`,
        advice.rotateAnyway(name),
      );
    this.#requireStorable(tool, options.store);
    const listed = await this.#consoleKey(tool);
    // Throws without a login.
    await consoles.keyActions(tool.gateway, listed.account ?? null);
    return { ...listed, renewed: renewedSettings(listed, consoles.now(tool.gateway)) };
  }

  /** Throws Refused if keybearer cannot give the tool another key. */
  #requireStorable(tool: Tool, store: Store | null): void {
    const { name, key, watchOnly } = tool;
    if (watchOnly) throw new Refused(`${name} is watch_only: another program holds its key`);
    if (this.#storage.placeOf(tool) === null && store === null && key.kind !== "literal")
      throw new Refused(
        `the key of ${name} comes from ${describeSource(key)}, which keybearer cannot change`,
        // A file can be written everywhere; a keychain may be missing or locked.
        advice.rotateInto(name, "file"),
      );
  }

  async rotate(name: string, options: RotateOptions): Promise<KeyChange> {
    const storage = this.#storage;
    const listed = await this.rotatable(name, options);
    const { renewed } = listed;
    if (renewed !== null && !options.renew)
      throw new Refused(
        `the key of ${name} ${endedText(renewed)}: a person at a terminal must agree to what the new one gets`,
        advice.rotate(name),
      );
    const { tool, key } = findTool(this.#deps.snapshot(), name);
    if (key === null) throw unreadable(name);
    const place = storage.placeOf(tool);
    const into = {
      place: await storage.nextPlace(tool, options.store ?? place?.kind ?? "file"),
      settings: { like: listed.ref, ...(renewed === null ? {} : { renewed }) },
    };
    const old = this.#oldKey(listed, key, place);
    return this.#begin(tool, { account: listed.account ?? null, reason: options.reason, into, old }, key);
  }

  /**
   * Another machine rotated the key that this tool has, too, and the gateway refuses it. The tool gets a key of its own.
   * @param like how the console names the other machine's new key, whose settings it gets
   */
  async replace(name: string, like: string): Promise<KeyChange> {
    const { consoles } = this.#deps;
    const storage = this.#storage;
    const { tool, key } = findTool(this.#deps.snapshot(), name);
    this.#requireStorable(tool, null);
    if (key === null) throw unreadable(name);
    const { gateway } = tool;
    const keys = await consoles.listKeys(gateway);
    if (keys.some(({ tools, state }) => tools.includes(name) && state !== "deleted"))
      throw new Refused(`the console of ${gateway} still lists the key of ${name}`, advice.keys());
    const model = keys.find((one) => one.name === like && one.state === "active");
    if (model === undefined)
      throw new Refused(
        `the console of ${gateway} lists no active key ${like}, whose settings the new key would get`,
        advice.rotate(name),
      );
    const place = storage.placeOf(tool);
    const into = {
      place: await storage.nextPlace(tool, place?.kind ?? "file"),
      settings: { like: model.ref },
    };
    const old = this.#oldKey(null, key, place);
    return this.#begin(tool, { account: model.account ?? null, reason: "sibling", into, old }, key);
  }

  /** Gives a tool of config.yaml its first key, at the place that config.yaml names. */
  async create(name: string, { account, settings }: CreateOptions): Promise<KeyChange> {
    const { consoles } = this.#deps;
    const storage = this.#storage;
    const { tool } = findTool(this.#deps.snapshot(), name);
    const place = storage.placeOf(tool);
    if (place === null)
      throw new Refused(
        `the key of ${name} comes from ${describeSource(tool.key)}, where keybearer stores none`,
      );
    const actions = await consoles.keyActions(tool.gateway, account);
    await checkGroup(actions, settings.group);
    // Last, so that a second command cannot begin in between.
    if ((await storage.read(place)) !== null)
      throw new Refused(`${name} has a key already`, advice.rotate(name));
    return this.#begin(tool, { account, reason: "asked", into: { place, settings }, old: null }, null);
  }

  /** Deletes a tool's key at the console, and where keybearer stored it. The tool has none then. */
  async delete(name: string): Promise<KeyChange> {
    const storage = this.#storage;
    const { tool, key } = findTool(this.#deps.snapshot(), name);
    const listed = await this.#consoleKey(tool);
    if (key === null) throw unreadable(name);
    const other = listed.tools.find((each) => each !== name);
    if (other !== undefined) throw new Refused(`tool ${other} has the same key`);
    const old = this.#oldKey(listed, key, storage.placeOf(tool));
    return this.#begin(tool, { account: listed.account ?? null, reason: "asked", into: null, old }, key);
  }

  /** A tool's key as the console lists it. Throws Refused if it cannot be changed there. */
  async changeable(name: string, action: KeyAction): Promise<KeyReport> {
    const { tool } = findTool(this.#deps.snapshot(), name);
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
    this.#requireUnchanged(listed);
    if (action !== "enable") this.#requireUnheld(listed);
    const actions = await consoles.keyActions(listed.gateway, listed.account ?? null);
    if (action === "delete") {
      await actions.delete(listed.ref);
      consoles.noteDeleted(listed.gateway, listed.ref);
    } else await actions.setEnabled(listed.ref, action === "enable");
    consoles.startSync(listed.gateway);
  }

  /** @param listed null: the console does not list it any more */
  #oldKey(listed: KeyReport | null, key: Secret, place: KeyPlace | null): OldKey {
    return {
      ref: listed?.ref ?? null,
      fingerprint: key.fingerprint,
      digest: this.#deps.trust().digestOf(key),
      place,
    };
  }

  /** Writes the intent down and takes its steps. Returns when the tool has its new key, and soon after at the latest. */
  async #begin(of: Tool, plan: ChangePlan, oldKey: Secret | null): Promise<KeyChange> {
    const { name: tool } = of;
    if (this.#inFlight.has(tool) || this.#deps.intents.of(tool) !== null)
      throw new Refused(`another change of the key of ${tool} is not finished`, advice.status());
    if (this.#stop.signal.aborted) throw new Refused("keybearer is stopping");
    const intent = createIntent(of, plan, this.#deps.clock.now());
    this.#begunHere.add(intent.id);
    let switched = (_new: string | null): void => {};
    const hasSwitched = new Promise<string | null>((resolve) => {
      switched = resolve;
    });
    let isKept = false;
    const kept = () => {
      isKept = true;
    };
    const finished = this.#track(tool, async () => {
      await this.#deps.intents.put(intent);
      // A deletion is certain from here on.
      if (intent.successor === null) switched(null);
      await this.#advance(intent, { isResumed: false, oldKey, switched, kept });
    });
    // A failure before the switch is the caller's. One after it is logged, and the step is taken again.
    const successor = await Promise.race([hasSwitched, finished.then(() => null)]);
    let isDone = false;
    const ended = finished.then(
      () => {
        isDone = true;
      },
      (error) => this.#noteProblem(intent, error),
    );
    await withTimeout(ended, RETIRE_WAIT_MS, null);
    const ending = isKept ? "kept" : "done";
    const state = isDone ? ending : "retiring";
    const why = this.#problems.get(intent.id)?.problem ?? null;
    return { tool, old: intent.old?.fingerprint ?? null, new: successor, state, why };
  }

  /** One change of a tool's key at a time. */
  #track(tool: string, work: () => Promise<void>): Promise<void> {
    const change = work().finally(() => this.#inFlight.delete(tool));
    this.#inFlight.set(tool, change);
    return change;
  }

  async #resumeOne(intent: Intent): Promise<void> {
    const storage = this.#storage;
    const { trust, intents, clock } = this.#deps;
    const isResumed = !this.#begunHere.has(intent.id);
    try {
      await this.#track(intent.tool, async () => {
        const problem = isResumed ? await this.#steps.findProblem(intent) : null;
        if (problem !== null) {
          const isThis = ({ id }: Intent) => id === intent.id;
          const found = await intents.keepOwn((each) => (isThis(each) ? problem : null), clock.now());
          return this.#deps.report(found);
        }
        const place = intent.old?.place ?? null;
        const found = place === null ? null : await storage.read(place);
        // Another key at that place is none of this change's.
        const oldKey = found !== null && trust().digestOf(found) === intent.old?.digest ? found : null;
        await this.#advance(intent, { isResumed, oldKey, switched: () => {}, kept: () => {} });
      });
    } catch (error) {
      this.#noteProblem(intent, error);
    }
  }

  /** It is taken up again every minute. */
  #noteProblem({ id, tool, gateway }: Intent, error: unknown): void {
    if (this.#stop.signal.aborted) return;
    const found = explainError(error, gateway);
    if (this.#problems.get(id)?.problem !== found.problem)
      this.#deps.log.warn({ tool }, `the change of its key is not finished: ${found.problem}`);
    this.#problems.set(id, found);
  }

  async #advance(begun: Intent, run: Run): Promise<void> {
    let intent: Intent | null = begun;
    while (intent !== null) {
      this.#stop.signal.throwIfAborted();
      intent = await this.#steps.take(intent, run);
    }
    this.#problems.delete(begun.id);
    this.#deps.consoles.startSync(begun.gateway);
  }

  /** The tool's key as the console lists it. */
  async #consoleKey({ name, gateway }: Tool): Promise<KeyReport> {
    // Without it no key of the list is the tool's.
    if (findTool(this.#deps.snapshot(), name).key === null) throw unreadable(name);
    const keys = await this.#deps.consoles.listKeys(gateway);
    const held = keys.filter(({ tools }) => tools.includes(name));
    const [listed] = held;
    if (listed === undefined)
      throw new Refused(
        `the console of ${gateway} does not list the key of ${name}: it was deleted, or belongs to another account`,
        advice.rotateByHand(name),
      );
    if (held.length > 1)
      throw new Refused(
        `the console of ${gateway} lists ${held.length} keys that may be the one of ${name}`,
        advice.keys(),
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
        throw new Refused(`the key of ${tool.name} cannot be read now, and may be this one`, advice.status());
    }
  }

  /** Throws Refused if the key belongs to an unfinished change. A new key has no tool until the switch. */
  #requireUnchanged(listed: KeyReport): void {
    const intent = this.#deps.intents.changing(listed);
    if (intent !== null)
      throw new Refused(`the change of the key of ${intent.tool} is not finished`, advice.status());
  }

  get #storage(): KeyStorage {
    return this.#deps.storage();
  }
}

function unreadable(tool: string): Refused {
  return new Refused(
    `the key of ${tool} cannot be read, so it is not known which of the console's keys it is`,
    advice.status(),
  );
}

async function checkGroup(actions: KeyActions, group: string | null): Promise<void> {
  if (group === null && !actions.needsGroup) return;
  const groups = await actions.groups();
  if (groups === null || (group !== null && groups.includes(group))) return;
  const known = `it has ${groups.join(", ")}`;
  if (group === null) throw new ConsoleError("refused", `makes no key without --group; ${known}`);
  throw new ConsoleError("refused", `has no group ${group} for this account; ${known}`);
}

/** codex-k3v9x2: unique at the console, and short enough for every one. */
function createIntent(tool: Tool, { account, reason, into, old }: ChangePlan, now: number): Intent {
  const { name, gateway } = tool;
  const source_before = describeSource(tool.key);
  return {
    id: newId(),
    tool: name,
    gateway,
    account,
    reason,
    started_at: now,
    successor: into && { ...into, name: newName(name), source_before, digest: null },
    old,
    step: into === null ? "retire" : "create",
  };
}

function newName(tool: string): string {
  return nameWith(tool, randomBytes(4).readUInt32BE().toString(36).padStart(RANDOM_LENGTH, "0"));
}

function nameWith(tool: string, random: string): string {
  const base = tool.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const name = `${base.slice(0, MAX_NAME - random.length - 1)}-${random}`;
  // For a tool called hf or sk it would look like a credential, and be hidden in every view.
  return isFreeOfKeyShapes(name) ? name : name.replaceAll("-", "");
}

function newId(): string {
  return `keybearer-${randomBytes(16).toString("hex")}`;
}

/**
 * Why a change that was read from a file is not keybearer's own, for people; null: it fits. A program that can write files
 * could otherwise make keybearer read, send or delete keys and files of that program's choice.
 */
export function intentProblem(
  intent: Intent,
  deps: Pick<LifecycleDeps, "snapshot" | "storage" | "trust">,
): string | null {
  const { config } = deps.snapshot();
  const storage = deps.storage();
  const { old, successor } = intent;
  const gateway = config.gateways[intent.gateway];
  const tool = config.tools[intent.tool];
  if (!/^keybearer-[0-9a-f]{32}$/.test(intent.id)) return "its id is not one of keybearer's";
  if (gateway === undefined) return "config.yaml has no such gateway";
  if (tool !== undefined && tool.gateway !== intent.gateway) return "the tool belongs to another gateway";
  if (old !== null && !deps.trust().isPinned(old, gateway))
    return "the old key is not one that was used with this gateway";
  if (old !== null && old.place !== null && !storage.isOwn(old.place))
    return "the old key is at a place that is not keybearer's";
  // A tool whose key is deleted may be removed from config.yaml by now.
  if (successor === null) return old !== null && intent.step === "retire" ? null : "it has no new key";
  if (tool === undefined) return "config.yaml has no such tool";
  if (!storage.isPlaceFor(successor.place, tool)) return "the new key is at a place that is not this tool's";
  const isInUse = isSameSource(tool.key, successor.place);
  if (old === null && !isInUse) return "the tool's first key is not where config.yaml names it";
  if (old !== null && isInUse && (intent.step === "create" || intent.step === "undo"))
    return "the new key is where the tool's key is";
  const random = successor.name.slice(-RANDOM_LENGTH);
  if (!/^[0-9a-z]{7}$/.test(random) || successor.name !== nameWith(intent.tool, random))
    return "the new key's name is not one of keybearer's";
  // Without a ref, the settings are another machine's, and after a restart nothing is created with them.
  const isCopy = "like" in successor.settings && [null, successor.settings.like].includes(old?.ref ?? null);
  if (old === null ? "like" in successor.settings : !isCopy)
    return "the new key would not have the settings of the old one";
  return null;
}
