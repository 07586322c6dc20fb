import { randomBytes } from "node:crypto";
import { describeSource, type Gateway, isSameSource, type Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import type { Problem } from "../core/display.ts";
import { errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { Secret } from "../core/secret.ts";
import { MINUTE_MS } from "../core/units.ts";
import type { KeyPlace } from "../keys/stored-keys.ts";
import { ConsoleError, type ConsoleErrorKind, type KeyActions } from "../mirror/consoles/console.ts";
import { consoleRemedy } from "../mirror/report/messages.ts";
import type { KeyReport } from "../mirror/report/shape.ts";
import type { Intent, IntentFile, OldKey, Successor } from "./intents.ts";
import { Refused } from "./refused.ts";
import type { KeyStorage } from "./storage.ts";

/** Whether a gateway accepts a key. */
export type Probed =
  | { readonly state: "accepted" }
  /** refused: the gateway answered 401. unclear: it did not answer, or answered something else. */
  | ({ readonly state: "refused" | "unclear" } & Problem);

export interface LifecycleDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly intents: IntentFile;
  /** As long as the sandbox serves, these two are others. */
  readonly storage: () => KeyStorage;
  readonly trust: () => KeyTrust;
  readonly snapshot: () => Snapshot;
  readonly consoles: Consoles;
  readonly siblings: KeySiblings;
  /** Shows a person what was found in a state file, in the log and in `status`. */
  readonly report: (problems: readonly string[]) => void;
  /** @param brief only whether it is accepted; a refusal is not explained */
  readonly probe: (gateway: Gateway, key: Secret, brief: boolean) => Promise<Probed>;
  /** Resolves once no request in flight has this key. */
  readonly whenUnused: (key: Secret, signal: AbortSignal) => Promise<void>;
  /** Rejects when the signal is aborted. */
  readonly pause: (milliseconds: number, signal: AbortSignal) => Promise<void>;
}

/** The other machines that may use the same keys. */
interface KeySiblings {
  /** The names of those that use the key with this fingerprint. */
  findUsers(key: string): readonly string[];
  /** Notifies them that a key is deleted, and how the console names its successor. Throws if that cannot be written down. */
  noteRotated(rotated: { readonly key: string; readonly successor: string }): Promise<void>;
}

/** What is known of where keys may go. */
export interface KeyTrust {
  /** How trust.json names the key. */
  digestOf(key: Secret): string;
  /** Whether the key was used before, here or elsewhere. */
  isKnown(key: Secret): boolean;
  /** Whether the key with this digest was used with this gateway, and has this fingerprint. */
  isPinned(key: Pick<OldKey, "digest" | "fingerprint">, gateway: Gateway): boolean;
  /** The tool's new key is stored at this place, for its gateway. Written down before it returns. */
  claim(tool: Tool, place: KeyPlace): Promise<void>;
  /** Why a tool's new key may not be sent to its gateway yet; null: it may. Its first use pins it. */
  admit(tool: Tool, key: Secret): Promise<string | null>;
}

/** What the mirror knows of the consoles. Methods throw ConsoleError. */
export interface Consoles {
  keyActions(gateway: string, account: string | null): Promise<KeyActions>;
  /** The console's keys as they are now, each beside the tools that hold it. */
  listKeys(gateway: string): Promise<readonly KeyReport[]>;
  /** By the console's clock, which its times are from. */
  now(gateway: string): number;
  /** The key was deleted at the console, and no alarm asks for that any more. */
  noteDeleted(gateway: string, ref: string): void;
  /** A key was changed: reads the console again. */
  startSync(gateway: string): void;
}

/** After a leak, requests in flight may delay the deletion of the old key for no longer. */
const LEAK_TIMEOUT_MS = MINUTE_MS;
/** A request that began before the switch may not be counted yet: its tool is still being identified. */
const UNIDENTIFIED_MS = 1000;
/** A busy new-api answers some calls with "database is locked". */
const CONSOLE_PAUSES_MS = [1000, 4000];
/** The console did not say whether it did what it was asked. */
const UNANSWERED: readonly ConsoleErrorKind[] = ["failing", "unreachable", "slow"];
/** A gateway that cannot be reached at the moment says nothing about the new key. */
const PROBE_PAUSES_MS = [500, 2000, 5000];
/** new-api v0.13.2 accepts a deleted key for up to a minute. */
const DEAD_PAUSES_MS = [500, 1000, 2000, 4000, 8000, 15_000, 30_000, 30_000];
/** A creation whose answer was lost may be listed late, and twice. sub2api works on one for at most 30 seconds. */
const LATE_CREATION_MS = 30_000;
const MAX_UNDOS = 5;

/** What one run of an intent knows beside it. */
export interface Run {
  /** An earlier process began it, so it was read from a file that every program of this user can write. */
  readonly isResumed: boolean;
  /** null: unknown, or there is none. */
  readonly oldKey: Secret | null;
  /** Called with the new key's fingerprint when the tool uses it. */
  readonly switched: (fingerprint: string) => void;
  /** Called if the old key stays, because another tool has it. */
  readonly kept: () => void;
}

/**
 * The steps of a change: create, switch, retire, or undo. Each can be taken again after a crash, at whatever point it was
 * interrupted.
 */
export class Steps {
  readonly #deps: LifecycleDeps;
  readonly #stop: AbortSignal;
  readonly #onProblem: (intent: Intent, problem: Problem) => void;

  /** @param onProblem is called for a change that must wait although its caller got an answer */
  constructor(deps: LifecycleDeps, stop: AbortSignal, onProblem: (intent: Intent, problem: Problem) => void) {
    this.#deps = deps;
    this.#stop = stop;
    this.#onProblem = onProblem;
  }

  /** Takes one step. Returns the intent with its next step; null: it is finished. */
  async take(intent: Intent, run: Run): Promise<Intent | null> {
    switch (intent.step) {
      case "create":
        return this.#orUndo(intent, run, () => this.#createKey(intent, run));
      case "switch":
        await this.#orUndo(intent, run, () => this.#putIntoUse(intent));
        return this.#checkUse(intent, run);
      case "retire":
        return this.#retire(intent, run);
      case "undo":
        return this.#undo(intent, run, true);
    }
  }

  /**
   * Why a change that was read from a file must not go on, for people; null: it may. A program that can write that file can read
   * trust.json, so digests alone prove nothing: the tool must have the key that the change says, and the console must list
   * it. Throws if that cannot be seen now.
   */
  async findProblem(intent: Intent): Promise<string | null> {
    const { step, old, successor } = intent;
    if (step === "undo" || (old === null && step === "create")) return null;
    const snapshot = this.#deps.snapshot();
    const tool = snapshot.config.tools[intent.tool];
    // The key of a tool that was removed is deleted.
    if (tool === undefined) return null;
    if (step === "retire" && old?.place != null && isSameSource(tool.key, old.place))
      return "the tool still has the old key";
    const { key } = findTool(snapshot, intent.tool);
    if (key === null) throw new Refused(`the key of ${intent.tool} cannot be read now`, advice.status());
    const digest = this.#deps.trust().digestOf(key);
    const hasOld = digest === old?.digest;
    const hasNew = successor !== null && digest === successor.digest;
    // What was deleted cannot be listed. #createKey creates nothing after a restart.
    if (step === "create" && old?.ref === null) return hasOld ? null : "the old key is not the tool's";
    if (step === "create") {
      const keys = await this.#deps.consoles.listKeys(intent.gateway);
      const listed = keys.find(
        ({ ref, account }) => ref === old?.ref && (account ?? null) === intent.account,
      );
      return hasOld && listed?.tools.includes(intent.tool) ? null : "the old key is not the tool's";
    }
    if (step === "retire" && hasOld) return "the tool still has the old key";
    if (successor === null) return null;
    if (!hasNew && !(step === "switch" && hasOld)) return "the tool has another key";
    const stored = hasNew ? key : await this.#readSuccessor(intent);
    // The switch finds that it is missing.
    if (stored === null) return null;
    return (await this.#findListed(intent, stored)) === null
      ? "the console does not list the new key under its name"
      : null;
  }

  /** The console's number for the new key if it lists this one under its name; null: it does not. */
  async #findListed(intent: Intent, { fingerprint }: Secret): Promise<string | null> {
    const keys = await this.#deps.consoles.listKeys(intent.gateway);
    return keys.find(({ name, key }) => name === nameOf(intent) && key === fingerprint)?.ref ?? null;
  }

  /** If the step fails, the new key is deleted again before the failure is reported. */
  async #orUndo<Done>(intent: Intent, run: Run, step: () => Promise<Done>): Promise<Done> {
    try {
      return await step();
    } catch (error) {
      if (this.#stop.aborted) throw error;
      if (await this.#isNamed(intent)) {
        this.#onProblem(intent, explainError(error, intent.gateway));
        throw error;
      }
      // The step may have written down more than it began with: the digest of the key that it stored.
      const undo: Intent = { ...(this.#deps.intents.of(intent.tool) ?? intent), step: "undo" };
      await this.#deps.intents.put(undo);
      try {
        await this.#undo(undo, run, isUnanswered(error));
      } catch (later) {
        const { problem, next } = explainError(error, intent.gateway);
        const left = explainError(later, intent.gateway);
        this.#onProblem(intent, left);
        throw new Refused(`${problem}; the new key ${nameOf(intent)} will be deleted: ${left.problem}`, next);
      }
      throw error;
    }
  }

  /** config.yaml names the new key already: without it, a tool that had a key would have none. So the step is taken again. */
  async #isNamed(intent: Intent): Promise<boolean> {
    return intent.old !== null && (await this.#storage.isNamed(requireSuccessor(intent).place));
  }

  /** The new key exists at the console, and is stored here. */
  async #createKey(begun: Intent, { isResumed }: Run): Promise<Intent> {
    const { name, settings } = requireSuccessor(begun);
    const actions = await this.#deps.consoles.keyActions(begun.gateway, begun.account);
    if (isResumed && hasSettingsOfFile(begun)) {
      const stored = await this.#readSuccessor(begun);
      if (stored !== null && (await this.#findListed(begun, stored)) !== null)
        return this.#goOn(begun, "switch");
      if (stored !== null || actions.takesOwnKeys || (await actions.find(name)) === null)
        throw new Refused(
          `the new key of ${begun.tool} was not created`,
          begun.old === null ? `${advice.remove(begun.tool)}, and add it again` : advice.rotate(begun.tool),
        );
    }
    // Stored first where the console takes it: from the moment the console knows the key, it is never lost.
    const { intent, key } = actions.takesOwnKeys
      ? await this.#storedKey(begun)
      : { intent: begun, key: null };
    const created = await this.#patiently(() => actions.create({ name, id: intent.id, key, settings }));
    return this.#goOn(key === null ? await this.#store(intent, created.key) : intent, "switch");
  }

  /** The key that this change has stored, or a new one. */
  async #storedKey(intent: Intent): Promise<{ readonly intent: Intent; readonly key: Secret }> {
    const stored = await this.#readSuccessor(intent);
    // A key that was used before belongs to its gateway, and the console may be somewhere else.
    if (stored !== null && this.#deps.trust().isKnown(stored))
      throw new Refused(
        `the key in ${describeSource(requireSuccessor(intent).place)} is not new: it was not sent`,
      );
    if (stored !== null) return { intent, key: stored };
    const key = new Secret(`sk-${randomBytes(32).toString("hex")}`);
    return { intent: await this.#store(intent, key), key };
  }

  /** Stores the new key. Its digest is written down first, so that no other key at its place is taken for it. */
  async #store(intent: Intent, key: Secret): Promise<Intent> {
    const successor = { ...requireSuccessor(intent), digest: this.#deps.trust().digestOf(key) };
    const next: Intent = { ...intent, successor };
    await this.#deps.intents.put(next);
    // First: config.yaml may name the place already, and the daemon reads it as soon as it is written.
    await this.#deps.trust().claim(findTool(this.#deps.snapshot(), intent.tool).tool, successor.place);
    await this.#storage.write(successor.place, key);
    return next;
  }

  /** null: it is not stored. Throws Refused if something else is at its place. */
  async #readSuccessor(intent: Intent): Promise<Secret | null> {
    const { place, digest } = requireSuccessor(intent);
    const key = await this.#storage.read(place);
    if (key === null || this.#deps.trust().digestOf(key) === digest) return key;
    throw new Refused(`there is another key in ${describeSource(place)}: it was not used`, advice.keys());
  }

  /** The gateway accepts the new key, and config.yaml names it. */
  async #putIntoUse(intent: Intent): Promise<void> {
    const storage = this.#storage;
    const { place, source_before } = requireSuccessor(intent);
    const key = await this.#readSuccessor(intent);
    if (key === null) throw new Refused(`the new key is no longer in ${describeSource(place)}`);
    const { tool, gateway } = findTool(this.#deps.snapshot(), intent.tool);
    // Again, because what is trusted may have been lost since then.
    await this.#deps.trust().claim(tool, place);
    const problem = await this.#deps.trust().admit(tool, key);
    if (problem !== null) throw new Refused(problem, advice.trust(intent.tool));
    let probed = await this.#deps.probe(gateway, key, false);
    for (const wait of PROBE_PAUSES_MS) {
      if (probed.state !== "unclear") break;
      await this.#pause(wait);
      probed = await this.#deps.probe(gateway, key, false);
    }
    if (probed.state !== "accepted")
      throw new Refused(`the gateway does not accept the new key: ${probed.problem}`, probed.next);
    await storage.use(intent.tool, place, source_before);
  }

  /** The old key may go only once the daemon uses the new one. */
  async #checkUse(intent: Intent, { switched }: Run): Promise<Intent | null> {
    const storage = this.#storage;
    const key = await storage.read(requireSuccessor(intent).place);
    const used = findTool(this.#deps.snapshot(), intent.tool).key;
    if (key === null || used === null || !used.equals(key))
      throw new Refused(
        `config.yaml names the new key of ${intent.tool}, but it is not in force`,
        advice.check(),
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
  async #retire(intent: Intent, run: Run): Promise<null> {
    const storage = this.#storage;
    const { old } = intent;
    if (old === null) return this.#finish(intent);
    // Asked now, not at the beginning: two tools with one key may be rotated at the same time, and the last one deletes it.
    const isShared = () => this.#hasOtherHolder(intent, old, run.oldKey);
    if (run.oldKey !== null && !isShared()) await this.#waitUntilUnused(intent, run.oldKey);
    const { ref } = old;
    if (isShared()) run.kept();
    else if (ref !== null) {
      if (!run.isResumed || (await this.#listsOldKey(intent, ref, old)))
        await this.#deleteOldKey(intent, ref, old, run.oldKey);
      await this.#notifySiblings(intent, old);
    }
    if (old.place !== null && !(await storage.isNamed(old.place)))
      await this.#removeKey(old.place, old.digest);
    return this.#finish(intent);
  }

  /**
   * The ref comes from a file. What the console lists under it must be the old key: throws Refused otherwise. False: it lists
   * nothing there, so the key is deleted, or the ref is another spelling of another key's.
   */
  async #listsOldKey({ gateway }: Intent, ref: string, { fingerprint }: OldKey): Promise<boolean> {
    const keys = await this.#deps.consoles.listKeys(gateway);
    const listed = keys.find((key) => key.ref === ref);
    if (listed === undefined) return false;
    if (listed.key === fingerprint) return true;
    throw new Refused(
      `the console of ${gateway} lists ${listed.key === null ? "a key that it does not show" : `key ${listed.key}`} where ${fingerprint} was: nothing was deleted`,
      `delete key ${fingerprint} in the console`,
    );
  }

  /** Removes the key with this digest. Another key at the place stays. */
  async #removeKey(place: KeyPlace, digest: string | null): Promise<void> {
    const key = await this.#storage.read(place);
    if (key !== null && this.#deps.trust().digestOf(key) === digest) await this.#storage.remove(place);
  }

  /** Only now: the others ask the gateway about the key, and it must refuse it. */
  async #notifySiblings({ tool, successor }: Intent, { fingerprint }: OldKey): Promise<void> {
    const { siblings, log } = this.#deps;
    const users = siblings.findUsers(fingerprint);
    // A key that was deleted without a successor was removed on purpose: other machines must not replace it.
    if (successor === null || users.length === 0) return;
    log.warn({ tool, key: fingerprint, machines: users }, "other machines used the key that was deleted");
    await siblings.noteRotated({ key: fingerprint, successor: successor.name });
  }

  async #deleteOldKey(
    intent: Intent,
    ref: string,
    { fingerprint }: OldKey,
    key: Secret | null,
  ): Promise<void> {
    const { consoles, log } = this.#deps;
    const actions = await consoles.keyActions(intent.gateway, intent.account);
    try {
      await this.#patiently(() => actions.delete(ref));
    } catch (error) {
      const isRefused = error instanceof ConsoleError && error.kind === "refused";
      if (!isRefused) throw error;
      // A person may have deleted it in the console.
      const probed = key === null ? null : await this.#probeDeleted(intent, key);
      if (probed?.state !== "refused")
        throw new Refused(
          explainError(error, intent.gateway).problem,
          `delete key ${fingerprint} in the console`,
        );
    }
    consoles.noteDeleted(intent.gateway, ref);
    if (key !== null) await this.#waitUntilDead(intent, key);
    log.info({ tool: intent.tool, old: fingerprint }, "the old key is deleted at the console");
  }

  /** Whether another tool has the old key. After a restart only its fingerprint may be known. */
  #hasOtherHolder({ tool, gateway }: Intent, { fingerprint, place }: OldKey, oldKey: Secret | null): boolean {
    const snapshot = this.#deps.snapshot();
    return Object.values(snapshot.config.tools).some((other) => {
      const state = snapshot.keyOf(other);
      if (other.name === tool || other.gateway !== gateway) return false;
      // A keychain may be locked at the moment. The same entry is the same key.
      if (place !== null && isSameSource(other.key, place)) return true;
      if (state.state !== "ready") return false;
      return oldKey === null ? state.key.fingerprint === fingerprint : state.key.equals(oldKey);
    });
  }

  async #waitUntilUnused({ reason, successor }: Intent, key: Secret): Promise<void> {
    // A tool without a successor is about to be removed. It may send requests until then, so waiting could last forever.
    if (successor === null) return;
    await this.#pause(UNIDENTIFIED_MS);
    const timeout = reason === "leak" ? [AbortSignal.timeout(LEAK_TIMEOUT_MS)] : [];
    const signal = AbortSignal.any([this.#stop, ...timeout]);
    await this.#deps.whenUnused(key, signal);
    this.#stop.throwIfAborted();
  }

  async #waitUntilDead(intent: Intent, key: Secret): Promise<void> {
    let probed = await this.#probeDeleted(intent, key);
    for (const wait of DEAD_PAUSES_MS) {
      if (probed === null || probed.state === "refused") return;
      await this.#pause(wait);
      probed = await this.#probeDeleted(intent, key);
    }
    if (probed === null || probed.state === "refused") return;
    if (probed.state === "unclear")
      throw new Refused(
        `the old key ${key.fingerprint} is deleted, but it is not known whether the gateway refuses it: ${probed.problem}`,
      );
    throw new Refused(
      `the console of ${intent.gateway} says that it deleted key ${key.fingerprint}, but the gateway still accepts it`,
      "delete it in the console",
    );
  }

  /** Asks a console again that fails at the moment. Every call is one that can be repeated. */
  async #patiently<Done>(call: () => Promise<Done>): Promise<Done> {
    for (const wait of CONSOLE_PAUSES_MS) {
      try {
        return await call();
      } catch (error) {
        if (!isUnanswered(error)) throw error;
      }
      await this.#pause(wait);
    }
    return call();
  }

  /** null: config.yaml no longer has such a gateway. */
  async #probeDeleted(intent: Intent, key: Secret): Promise<Probed | null> {
    const gateway = this.#deps.snapshot().config.gateways[intent.gateway];
    return gateway === undefined ? null : this.#deps.probe(gateway, key, true);
  }

  /** @param isLate the console may list the new key only in a moment */
  async #undo(intent: Intent, { isResumed }: Run, isLate: boolean): Promise<null> {
    const { consoles } = this.#deps;
    const { name, place, digest } = requireSuccessor(intent);
    const actions = await consoles.keyActions(intent.gateway, intent.account);
    const holders = (await consoles.listKeys(intent.gateway)).find((key) => key.name === name)?.tools ?? [];
    // A tool's first key is where config.yaml names it, so the tool has it already. What a file says is no reason to take a
    // key away that a tool has.
    const isFirst = intent.old === null && !isResumed;
    const holder = holders.find((tool) => tool !== intent.tool || !isFirst);
    if (holder !== undefined) {
      this.#deps.log.warn({ tool: intent.tool }, `tool ${holder} has the key ${name}, so it was not deleted`);
      return this.#finish(intent);
    }
    const stored = await this.#storage.read(place);
    const key = stored !== null && this.#deps.trust().digestOf(stored) === digest ? stored : null;
    // A name in a file is no reason to delete a key: the console must list the one that is stored here.
    const findOwn = async () => (key === null ? null : this.#findListed(intent, key));
    const find = isResumed ? findOwn : () => actions.find(name);
    let ref = await find();
    if (ref === null && isLate && (key !== null || !isResumed)) {
      await this.#pause(LATE_CREATION_MS);
      ref = await find();
    }
    let undone = 0;
    for (; ref !== null && undone < MAX_UNDOS; undone += 1) {
      await actions.delete(ref);
      ref = await find();
    }
    const left = isResumed ? await actions.find(name) : null;
    if (left !== null)
      this.#deps.report([
        `the console of ${intent.gateway} has a key ${name}, which may be an unfinished one of ${intent.tool}: it was not deleted → ${advice.keys()}`,
      ]);
    // config.yaml may name the place already, for a tool that was to get its first key. Then the tool has none.
    if (key !== null && (!isResumed || undone > 0 || (await this.#isDead(intent, key))))
      await this.#storage.remove(place);
    return this.#finish(intent);
  }

  /** Whether the gateway refuses the key, so that nothing depends on it. Throws Refused if the gateway does not say. */
  async #isDead(intent: Intent, key: Secret): Promise<boolean> {
    const { tool, gateway } = findTool(this.#deps.snapshot(), intent.tool);
    const problem = await this.#deps.trust().admit(tool, key);
    if (problem !== null) throw new Refused(problem, advice.trust(intent.tool));
    const probed = await this.#deps.probe(gateway, key, true);
    if (probed.state === "unclear") throw new Refused(probed.problem, probed.next);
    return probed.state === "refused";
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

  get #storage(): KeyStorage {
    return this.#deps.storage();
  }

  async #pause(milliseconds: number): Promise<void> {
    await this.#deps.pause(milliseconds, this.#stop);
  }
}

function requireSuccessor({ successor }: Intent): Successor {
  if (successor === null) throw new Error("this change has no new key");
  return successor;
}

function isUnanswered(error: unknown): boolean {
  return error instanceof ConsoleError && UNANSWERED.includes(error.kind);
}

/**
 * Some settings of the new key are only in the file: of a tool's first key, of one like another machine's, and those to which
 * a person agreed. So after a restart nothing is created with them.
 */
function hasSettingsOfFile(intent: Intent): boolean {
  const { settings } = requireSuccessor(intent);
  return (intent.old?.ref ?? null) === null || ("like" in settings && settings.renewed !== undefined);
}

function nameOf({ successor }: Intent): string {
  return successor?.name ?? "";
}

export function explainError(error: unknown, gateway: string): Problem {
  const message = errorMessage(error);
  // Its message continues a sentence.
  if (error instanceof ConsoleError)
    return { problem: `the console of ${gateway} ${message}`, next: consoleRemedy(error, gateway) };
  return { problem: message, next: error instanceof Refused ? error.next : null };
}

/** A tool with its gateway and its key; the key is null if it cannot be used. Throws Refused. */
export function findTool(
  snapshot: Snapshot,
  name: string,
): { readonly tool: Tool; readonly gateway: Gateway; readonly key: Secret | null } {
  const tool = snapshot.config.tools[name];
  if (tool === undefined) throw new Refused(`there is no tool ${name} in config.yaml`, advice.tools());
  const key = snapshot.keyOf(tool);
  if (key.state === "needs-trust")
    throw new Refused(`the key of ${name} waits for your confirmation`, advice.trust(name));
  return { tool, gateway: snapshot.gatewayOf(tool), key: key.state === "ready" ? key.key : null };
}
