import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { writePrivateFile } from "../core/private-file.ts";
import { listOf, objectOf } from "./connection.ts";
import type { KnownMachine } from "./store.ts";

interface State {
  readonly id: string;
  /** The other machines that this one has seen. */
  readonly known: readonly KnownMachine[];
  /** The last entry that was read of each machine's stream, by its id. */
  readonly positions: Readonly<Record<string, string>>;
}

/**
 * state/shared.json: who this machine is, and what it knows of the others. The identity belongs to the usage journal beside
 * it: a machine whose journal is gone must not pass for the one that spent.
 */
export class StateFile {
  readonly #path: string;
  #state: State;
  #saving: Promise<void> = Promise.resolve();

  constructor(path: string) {
    this.#path = path;
    this.#state = readState(path) ?? { id: randomBytes(8).toString("hex"), known: [], positions: {} };
  }

  get id(): string {
    return this.#state.id;
  }

  get known(): readonly KnownMachine[] {
    return this.#state.known;
  }

  get positions(): Readonly<Record<string, string>> {
    return this.#state.positions;
  }

  /** Writes the file if there is none yet. Throws. */
  async create(): Promise<void> {
    await this.#save(this.#state);
  }

  /** Adds machines that were not known yet. */
  async learn(machines: readonly KnownMachine[]): Promise<void> {
    const others = machines.filter(({ id }) => id !== this.id).map(({ id, name }) => ({ id, name }));
    const isNew = ({ id, name }: KnownMachine) =>
      !this.known.some((known) => known.id === id && known.name === name);
    if (!others.some(isNew)) return;
    const ids = new Set(others.map(({ id }) => id));
    await this.#save({ ...this.#state, known: [...this.known.filter(({ id }) => !ids.has(id)), ...others] });
  }

  async setPositions(positions: Readonly<Record<string, string>>): Promise<void> {
    await this.#save({ ...this.#state, positions });
  }

  /** One write at a time, in order. */
  #save(state: State): Promise<void> {
    this.#state = state;
    const write = () => writePrivateFile(this.#path, `${JSON.stringify(this.#state)}\n`).then(() => {});
    this.#saving = this.#saving.then(write, write);
    return this.#saving;
  }
}

/**
 * null: there is no file, or it cannot be read. Then the machine gets a new identity, and what the old one holds stays used
 * until its windows end.
 */
function readState(path: string): State | null {
  const { id, known, positions } = objectOf(readJson(path));
  if (typeof id !== "string" || !/^[0-9a-f]{16}$/.test(id)) return null;
  return { id, known: listOf(known).flatMap(machineOf), positions: textsOf(objectOf(positions)) };
}

function readJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, "utf8"));
  } catch {
    return null;
  }
}

function machineOf(value: unknown): KnownMachine[] {
  const { id, name } = objectOf(value);
  return typeof id === "string" && typeof name === "string" ? [{ id, name }] : [];
}

function textsOf(values: Readonly<Record<string, unknown>>): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const [name, value] of Object.entries(values)) if (typeof value === "string") texts[name] = value;
  return texts;
}
