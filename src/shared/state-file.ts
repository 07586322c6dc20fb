import { randomBytes } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { asFields, asList, textsIn } from "../core/json.ts";
import { readOwnFile } from "../core/own-file.ts";
import { pick } from "../core/pick.ts";
import { writePrivateFile } from "../core/private-file.ts";
import { DAY_MS, MINUTE_MS } from "../core/units.ts";

/** Another machine, as the store must know it. */
export interface KnownMachine {
  readonly id: string;
  readonly name: string;
  /** The fingerprints of the keys that it holds. */
  readonly keys: readonly string[];
}

/** Another machine, as this one last knew it. */
export interface KnownSibling extends KnownMachine {
  /** All its records from before this time are here, by this machine's clock. */
  readonly seenUntil: number;
  /** It stopped, after it had published everything. */
  readonly isStopped: boolean;
  /** What it says of itself is signed. */
  readonly isVerified: boolean;
}

/** A key that this machine rotated while other machines used it. */
export interface RotatedKey {
  /** The fingerprint of the key that was deleted. */
  readonly key: string;
  /** How the console names the new one. Other machines that make themselves a key copy its settings. */
  readonly successor: string;
}

interface State {
  readonly id: string;
  /** The names of the last connections to the store, the newest last. */
  readonly connections: readonly string[];
  readonly known: readonly KnownSibling[];
  /** The last entry that was read of each machine's stream, by its id. */
  readonly positions: Readonly<Record<string, string>>;
  /** Identifies the secret with which the others' entries were checked; null: there was none. */
  readonly signerId: string | null;
  /** The newest last, with when it was, by this machine's clock. */
  readonly rotated: readonly (RotatedKey & { readonly at: number })[];
}

/** A machine that was off for longer needs a key by hand. */
const KEEP_ROTATED_MS = 31 * DAY_MS;
const MAX_ROTATED = 20;

/** How far records were read changes each second. It is written down at most this often. */
const SAVE_SEEN_MS = MINUTE_MS;
/** A store that lost its last seconds, or was restored from a backup, has an older name. */
const MAX_CONNECTIONS = 50;

/**
 * state/shared.json: who this machine is, and what it knows of the others. It is beside the usage journal: without its
 * journal a machine does not know what it spent, and must not keep its identity.
 */
export class StateFile {
  readonly #path: string;
  #state: State;
  #isNew: boolean;
  /** The name of a connection that the store may not have yet. */
  #pending: string | null = null;
  #saving: Promise<void> = Promise.resolve();
  /** The write that has not begun yet; null: there is none. */
  #nextSave: Promise<void> | null = null;

  constructor(path: string) {
    this.#path = path;
    const found = readState(path);
    this.#isNew = found === null;
    const nothing = { connections: [], known: [], positions: {}, signerId: null, rotated: [] };
    this.#state = found ?? { id: newId(), ...nothing };
  }

  /** Random, made once for each state folder. */
  get id(): string {
    return this.#state.id;
  }

  /** The identity was made by this process, and no store has granted anything to it yet. */
  get isNew(): boolean {
    return this.#isNew;
  }

  /** The store has answered, so it may have granted something. */
  noteAnswer(): void {
    this.#isNew = false;
  }

  /**
   * The name of the next connection is the last of these. The store has one of the others, or this one if its answer was
   * lost. A name is used again only if nothing was called with it. Throws if it cannot be written down.
   */
  async nextConnection(): Promise<readonly string[]> {
    if (this.#pending === null) {
      this.#pending = newId();
      const connections = [...this.#state.connections.slice(-MAX_CONNECTIONS), this.#pending];
      this.#state = { ...this.#state, connections };
    }
    // Also if it is not the first attempt: the last write may have failed.
    await this.#save(this.#state);
    return this.#state.connections;
  }

  /** The store has the name of the connection now. */
  confirmConnection(): void {
    this.#pending = null;
  }

  /** Another daemon has this identity: it was copied with the state folder, or the folder is an old one. */
  async renew(): Promise<void> {
    this.#isNew = true;
    this.#pending = null;
    await this.#save({ ...this.#state, id: newId(), connections: [] });
  }

  get known(): readonly KnownSibling[] {
    return this.#state.known;
  }

  get knownMachines(): readonly KnownMachine[] {
    return this.known.map((machine) => pick(machine, ["id", "name", "keys"]));
  }

  /** For the subscriber. */
  readonly positions = {
    get: () => this.#state.positions,
    set: (positions: State["positions"]) => this.#save({ ...this.#state, positions }),
  };

  /**
   * Writes the file, so that an error of the disk shows before the first grant. Throws. With another secret than before,
   * everything that the others published is read and checked again.
   */
  async create(signerId: string | null): Promise<void> {
    if (signerId !== this.#state.signerId) {
      const known = this.known.map((machine) => ({ ...machine, seenUntil: 0, isVerified: false }));
      this.#state = { ...this.#state, known, positions: {}, signerId };
    }
    await this.#save(this.#state);
  }

  /** Writes down what is known of the others, if that changed. */
  async learn(siblings: readonly KnownSibling[]): Promise<void> {
    const isChanged =
      siblings.length !== this.known.length || siblings.some((sibling) => this.#isChanged(sibling));
    if (isChanged) await this.#save({ ...this.#state, known: siblings });
  }

  /** What the other machines are notified of, also after a restart. */
  rotated(now: number): RotatedKey[] {
    return this.#state.rotated
      .filter(({ at }) => Math.abs(now - at) < KEEP_ROTATED_MS)
      .map((one) => pick(one, ["key", "successor"]));
  }

  async noteRotated({ key, successor }: RotatedKey, at: number): Promise<void> {
    const others = this.#state.rotated.filter((one) => one.key !== key);
    const rotated = [...others, { key, successor, at }].slice(-MAX_ROTATED);
    await this.#save({ ...this.#state, rotated });
  }

  /** Waits for the last write. */
  async flush(): Promise<void> {
    // The caller of that write got the error.
    await this.#saving.catch(() => {});
  }

  #isChanged(sibling: KnownSibling): boolean {
    const known = this.known.find(({ id }) => id === sibling.id);
    if (known === undefined) return true;
    const { seenUntil } = sibling;
    if (!isDeepStrictEqual({ ...known, seenUntil }, sibling)) return true;
    return seenUntil < known.seenUntil || seenUntil - known.seenUntil > SAVE_SEEN_MS;
  }

  /** One write at a time. The next one writes what is newest then. */
  #save(state: State): Promise<void> {
    this.#state = state;
    if (this.#nextSave === null) {
      const write = () => this.#write();
      this.#nextSave = this.#saving.then(write, write);
      this.#saving = this.#nextSave;
    }
    return this.#nextSave;
  }

  async #write(): Promise<void> {
    this.#nextSave = null;
    await writePrivateFile(this.#path, `${JSON.stringify(this.#state)}\n`);
  }
}

/**
 * null: there is no file, or it cannot be read. Then the machine gets a new identity, and what the old one holds stays used
 * until its windows end.
 */
function readState(path: string): State | null {
  const { id, connections, known, positions, signerId, rotated } = asFields(readJson(path));
  if (typeof id !== "string" || !/^[0-9a-f]{16}$/.test(id)) return null;
  return {
    id,
    connections: asList(connections).map(String),
    known: asList(known).flatMap(parseSibling),
    positions: textsIn(positions),
    signerId: typeof signerId === "string" ? signerId : null,
    rotated: asList(rotated).flatMap((one) => {
      const at = Number(asFields(one).at) || 0;
      return parseRotatedKeys([one]).map((key) => ({ ...key, at }));
    }),
  };
}

/** The values that are fingerprints and names as keybearer makes them. */
export function parseRotatedKeys(value: unknown): RotatedKey[] {
  return asList(value)
    .slice(0, MAX_ROTATED)
    .flatMap((one) => {
      const { key, successor } = asFields(one);
      if (typeof key !== "string" || !/^….{1,4}$/u.test(key)) return [];
      if (typeof successor !== "string" || !/^[a-z0-9-]{1,30}$/.test(successor)) return [];
      return [{ key, successor }];
    });
}

const MAX_BYTES = 16 * 1024 * 1024;

function readJson(path: string): unknown {
  try {
    return JSON.parse(readOwnFile(path, MAX_BYTES) ?? "null");
  } catch {
    return null;
  }
}

function parseSibling(value: unknown): KnownSibling[] {
  const { id, name, keys, seenUntil, isStopped, isVerified } = asFields(value);
  if (typeof id !== "string" || typeof name !== "string") return [];
  return [
    {
      id,
      name,
      keys: asList(keys).map(String),
      seenUntil: Number(seenUntil) || 0,
      isStopped: isStopped === true,
      isVerified: isVerified === true,
    },
  ];
}

function newId(): string {
  return randomBytes(8).toString("hex");
}
