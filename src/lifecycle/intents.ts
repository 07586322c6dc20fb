import { advice } from "../core/advice.ts";
import { escapeControlChars } from "../core/display.ts";
import { errorMessage } from "../core/errors.ts";
import { asFields, type JsonObject, listAt, numberAt, objectAt, parseObject, textAt } from "../core/json.ts";
import { asideName, ForeignFile, readOwnFile, setAside } from "../core/own-file.ts";
import { writePrivateFile } from "../core/private-file.ts";
import type { KeyPlace } from "../keys/stored-keys.ts";
import type { CopiedSettings, KeyPlan, KeySettings } from "../mirror/consoles/console.ts";
import type { KeyReport } from "../mirror/report/shape.ts";
import { Refused } from "./refused.ts";

/** A key of a console, as it names it. */
export type ListedKey = Pick<KeyReport, "gateway" | "name" | "ref">;

/**
 * A change of a tool's key that has begun. It is written down before each step, so that a daemon that was killed finishes
 * it at its next start. It holds no key: those are at their places.
 */
export interface Intent {
  readonly id: string;
  readonly tool: string;
  readonly gateway: string;
  /** Whose keys they are, where the console has several accounts. */
  readonly account: string | null;
  readonly reason: Reason;
  readonly started_at: number;
  /** The new key; null: the tool gets none. */
  readonly successor: Successor | null;
  /** The key that the tool has until then; null: it has none. */
  readonly old: OldKey | null;
  readonly step: Step;
}

/** Why: a person asked, `rotate_every`, `on_leak`, or another machine rotated the key that this one used, too. */
export type Reason = "asked" | "age" | "leak" | "sibling";

/**
 * - create: the new key is made and stored
 * - switch: it is tried, and the tool uses it
 * - retire: the old key is deleted
 * - undo: the new key is deleted, because the tool cannot use it
 */
type Step = "create" | "switch" | "retire" | "undo";

export interface Successor {
  /** At the console. No other key there has it. */
  readonly name: string;
  readonly place: KeyPlace;
  readonly settings: KeyPlan["settings"];
  /** What config.yaml says of the tool's key until the switch, as describeSource words it. */
  readonly source_before: string;
  /** How trust.json would name the new key; null: there is none yet. No other key at its place is used. */
  readonly digest: string | null;
}

export interface OldKey {
  /** At the console; null: another machine deleted it there. */
  readonly ref: string | null;
  readonly fingerprint: string;
  /** How trust.json names it. */
  readonly digest: string;
  /** Where keybearer stored it; null: elsewhere. */
  readonly place: KeyPlace | null;
}

interface Content {
  readonly intents: readonly Intent[];
  /** By tool, see lastReplaced. */
  readonly leaks: Readonly<Record<string, number>>;
}

const VERSION = 1;
/** A change takes one kilobyte, and there is at most one for each tool. */
const MAX_BYTES = 1024 * 1024;

/** The intents on disk, and when each tool's key was last replaced (lastReplaced). */
export class IntentFile {
  readonly #file: string;
  #content: Content = { intents: [], leaks: {} };
  /** Writes run one after the other. */
  #writing: Promise<void> = Promise.resolve();

  constructor(file: string) {
    this.#file = file;
  }

  /** `problem`, for people, says what is wrong with the file. */
  load(now: number): { readonly problem: string | null } {
    let found: Content | null = null;
    try {
      const text = readOwnFile(this.#file, MAX_BYTES);
      if (text === null) return { problem: null };
      found = parseFile(text);
    } catch (error) {
      if (!(error instanceof ForeignFile)) throw error;
    }
    if (found !== null) {
      this.#content = found;
      return { problem: null };
    }
    const kept = setAside(this.#file, now);
    return {
      problem: `${this.#file} is damaged, and was set aside as ${kept}. a change of a key may be unfinished → ${advice.keys()}`,
    };
  }

  /**
   * Keeps the changes that are keybearer's own. If there are others, the whole file is set aside for a person to examine, and
   * they are never executed. Returns what was found, for people.
   * @param findProblem why a change is not keybearer's own; null: it is
   */
  async keepOwn(findProblem: (intent: Intent) => string | null, now: number): Promise<string[]> {
    const checked = this.#content.intents.map((intent) => ({ intent, problem: findProblem(intent) }));
    if (checked.every(({ problem }) => problem === null)) return [];
    // A copy first: if this is interrupted, the next start finds the file as it was.
    const kept = asideName(this.#file, now);
    await writePrivateFile(kept, fileText(this.#content));
    const own = checked.filter(({ problem }) => problem === null).map(({ intent }) => intent);
    await this.#change(({ leaks }) => ({ intents: own, leaks }));
    return checked.flatMap(({ intent, problem }) =>
      problem === null
        ? []
        : `a change of the key of ${escapeControlChars(intent.tool)} was not executed, because keybearer did not write it: ${problem}. it is in ${kept} → ${advice.keys()}`,
    );
  }

  all(): readonly Intent[] {
    return this.#content.intents;
  }

  of(tool: string): Intent | null {
    return this.#content.intents.find((intent) => intent.tool === tool) ?? null;
  }

  /** The unfinished change that makes this key of a console, or replaces it; null: there is none. */
  changing({ gateway, name, ref }: ListedKey): Intent | null {
    const isKey = ({ successor, old }: Intent) => successor?.name === name || old?.ref === ref;
    return this.#content.intents.find((intent) => intent.gateway === gateway && isKey(intent)) ?? null;
  }

  /** When a tool's key was last replaced because of a leak, or because another machine deleted it; null: never. */
  lastReplaced(tool: string): number | null {
    return this.#content.leaks[tool] ?? null;
  }

  /** Adds the intent, or replaces the one with its id. Returns once it is on the disk; throws Refused otherwise. */
  put(intent: Intent): Promise<void> {
    return this.#change(({ intents, leaks }) => {
      const others = intents.filter(({ id }) => id !== intent.id);
      return { intents: [...others, intent], leaks };
    });
  }

  remove({ id }: Intent): Promise<void> {
    return this.#change(({ intents, leaks }) => ({
      intents: intents.filter((intent) => intent.id !== id),
      leaks,
    }));
  }

  noteReplaced(tool: string, at: number): Promise<void> {
    return this.#change(({ intents, leaks }) => ({ intents, leaks: { ...leaks, [tool]: at } }));
  }

  #change(change: (content: Content) => Content): Promise<void> {
    const written = this.#writing.then(async () => {
      const content = change(this.#content);
      try {
        await writePrivateFile(this.#file, fileText(content));
      } catch (error) {
        throw new Refused(
          `${this.#file} cannot be written: ${errorMessage(error)}`,
          "free disk space, or check the folder",
        );
      }
      // What could not be written did not happen.
      this.#content = content;
    });
    this.#writing = written.catch(() => {
      // The caller has the error.
    });
    return written;
  }
}

/** Whether a change of a key is unfinished here, or a leak noted, beside those of this gateway. A damaged file counts. */
export function hasChangesBeside(gateway: string, file: string): boolean {
  try {
    const text = readOwnFile(file, MAX_BYTES);
    if (text === null) return false;
    const found = parseFile(text);
    if (found === null || Object.keys(found.leaks).length > 0) return true;
    return found.intents.some((intent) => intent.gateway !== gateway);
  } catch (error) {
    if (!(error instanceof ForeignFile)) throw error;
    return true;
  }
}

function fileText(content: Content): string {
  return `${JSON.stringify({ version: VERSION, ...content }, null, 1)}\n`;
}

/** null: damaged. Strict, because a wrong place or ref would delete another key. */
function parseFile(text: string): Content | null {
  const file = parseObject(text);
  const list = numberAt(file, "version") === VERSION ? listAt(file, "intents") : null;
  if (list === null) return null;
  const intents = list.map((value) => parseIntent(asFields(value)));
  const whole = intents.filter((intent) => intent !== null);
  if (whole.length < intents.length) return null;
  const leaks: Record<string, number> = {};
  const stored = objectAt(file, "leaks") ?? {};
  for (const tool of Object.keys(stored)) leaks[tool] = numberAt(stored, tool) ?? 0;
  return { intents: whole, leaks };
}

const REASONS: readonly Reason[] = ["asked", "age", "leak", "sibling"];
const STEPS: readonly Step[] = ["create", "switch", "retire", "undo"];

function parseIntent(fields: JsonObject): Intent | null {
  const id = textAt(fields, "id");
  const tool = textAt(fields, "tool");
  const gateway = textAt(fields, "gateway");
  const started = numberAt(fields, "started_at");
  const reason = REASONS.find((one) => one === fields.reason);
  const step = STEPS.find((one) => one === fields.step);
  const successor = fields.successor === null ? null : parseSuccessor(objectAt(fields, "successor") ?? {});
  const old = fields.old === null ? null : parseOldKey(objectAt(fields, "old") ?? {});
  if (id === null || tool === null || gateway === null || started === null) return null;
  if (reason === undefined || step === undefined || successor === undefined || old === undefined) return null;
  const account = textAt(fields, "account");
  return { id, tool, gateway, account, reason, started_at: started, successor, old, step };
}

/** undefined: damaged. */
function parseSuccessor(fields: JsonObject): Successor | undefined {
  const name = textAt(fields, "name");
  const before = textAt(fields, "source_before");
  const place = parsePlace(objectAt(fields, "place") ?? {});
  if (name === null || before === null || place === null) return undefined;
  const settings = objectAt(fields, "settings") ?? {};
  const like = textAt(settings, "like");
  return {
    name,
    place,
    settings: like === null ? parseSettings(settings) : parseCopied(like, settings),
    source_before: before,
    digest: textAt(fields, "digest"),
  };
}

function parseSettings(fields: JsonObject): KeySettings {
  const windows = (listAt(fields, "windows") ?? []).flatMap((value) => {
    const window = textAt(value, "window");
    const most = numberAt(value, "most");
    return window === null || most === null ? [] : [{ window, most }];
  });
  return {
    group: textAt(fields, "group"),
    quota: numberAt(fields, "quota"),
    windows,
    expires_at: numberAt(fields, "expires_at"),
    models: (listAt(fields, "models") ?? []).filter((model) => typeof model === "string"),
  };
}

function parseCopied(like: string, fields: JsonObject): CopiedSettings {
  const renewed = objectAt(fields, "renewed");
  if (renewed === null) return { like };
  const expires_at = numberAt(renewed, "expires_at");
  return { like, renewed: { expires_at, quota: numberAt(renewed, "quota") } };
}

function parseOldKey(fields: JsonObject): OldKey | undefined {
  const ref = textAt(fields, "ref");
  const fingerprint = textAt(fields, "fingerprint");
  const stored = objectAt(fields, "place");
  const place = stored === null ? null : parsePlace(stored);
  const hasRef = ref !== null || fields.ref === null;
  if (!hasRef || fingerprint === null || (stored !== null && place === null)) return undefined;
  // Without a digest it fits no key, and the change is set aside.
  return { ref, fingerprint, digest: textAt(fields, "digest") ?? "", place };
}

function parsePlace(fields: JsonObject): KeyPlace | null {
  const path = textAt(fields, "path");
  const service = textAt(fields, "service");
  const account = textAt(fields, "account");
  if (fields.kind === "file" && path !== null) return { kind: "file", path };
  if (fields.kind === "keychain" && service !== null && account !== null)
    return { kind: "keychain", service, account };
  return null;
}
