import { createHash } from "node:crypto";
import { chmod, mkdir, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { errorMessage } from "../core/errors.ts";
import { writePrivateFile } from "../core/private-file.ts";
import type { Writable } from "./settings-files.ts";

/** A client's settings before a --write. */
export interface UndoCopy {
  /** The name of its two files. */
  readonly id: string;
  /** The tool that the client was pointed at. */
  readonly tool: string;
  readonly file: string;
  /** null: there was no such file. */
  readonly before: string | null;
  /** The old file's mode, for the case that it is gone since. */
  readonly mode: number;
  /** Digest of the text that was written. It shows whether the file was changed since. */
  readonly written: string;
  /** The hash of the token that was made for it; null: none was. */
  readonly tokenHash: string | null;
}

/** What is stored beside the old file. */
interface Facts extends Omit<UndoCopy, "id" | "before"> {
  readonly version: 1;
  readonly existed: boolean;
}

const MAX_COPIES = 5;

/** The old settings for `--undo`. They may hold a real key, so only the owner can read them, and the oldest are deleted. */
export class UndoStore {
  readonly #folder: string;

  constructor(state: string) {
    this.#folder = join(state, "undo");
  }

  /** Rejects if the copy cannot be kept. */
  async add(client: Writable, copy: Omit<UndoCopy, "id">): Promise<UndoCopy> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    await chmod(this.#folder, 0o700);
    const taken = new Set([...(await this.#ids(client, "json")), ...(await this.#ids(client, "old"))]);
    let now = Date.now();
    while (taken.has(idFor(client, now))) now += 1;
    const id = idFor(client, now);
    // The old file is kept as it was, so that a person can copy it back, too. The facts come last: they make it complete.
    const { tool, file, before, mode, written, tokenHash } = copy;
    if (before !== null) await writePrivateFile(this.#oldFile(id), before);
    const facts: Facts = { version: 1, tool, file, existed: before !== null, mode, written, tokenHash };
    await writePrivateFile(this.#factsFile(id), `${JSON.stringify(facts, null, 1)}\n`);
    const oldest = [...taken].toSorted().slice(0, -(MAX_COPIES - 1));
    for (const each of oldest) await this.#delete(each);
    return { id, ...copy };
  }

  /** null: there is none. Rejects if it is damaged. */
  async newest(client: Writable): Promise<UndoCopy | null> {
    const id = (await this.#ids(client, "json")).at(-1);
    if (id === undefined) return null;
    // Copies of older versions do not name the token.
    const { existed, tool, file, mode, written, tokenHash = null } = await this.#readFacts(id);
    const before = existed ? decode(await readFile(this.#oldFile(id))) : null;
    return { id, tool, file, before, mode, written, tokenHash };
  }

  async #readFacts(id: string): Promise<Facts> {
    const file = this.#factsFile(id);
    try {
      return JSON.parse(await readFile(file, "utf8"));
    } catch (error) {
      const reason = errorMessage(error);
      throw new Error(`${file} cannot be read: ${reason}. the old settings are in ${this.#oldFile(id)}`);
    }
  }

  remove({ id }: UndoCopy): Promise<void> {
    return this.#delete(id);
  }

  async #delete(id: string): Promise<void> {
    await rm(this.#factsFile(id), { force: true });
    await rm(this.#oldFile(id), { force: true });
  }

  /** Oldest first. */
  async #ids(client: Writable, extension: "json" | "old"): Promise<string[]> {
    const names = await readdir(this.#folder).catch(() => []);
    const pattern = new RegExp(`^(${client}-\\d{4}-[\\d-]+T[\\d-]+Z)\\.${extension}$`);
    return names.flatMap((name) => pattern.exec(name)?.[1] ?? []).toSorted();
  }

  #factsFile(id: string): string {
    return join(this.#folder, `${id}.json`);
  }

  #oldFile(id: string): string {
    return join(this.#folder, `${id}.old`);
  }
}

export function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function idFor(client: Writable, now: number): string {
  return `${client}-${new Date(now).toISOString().replace(/[:.]/g, "-")}`;
}

/** Keeps a byte order mark. readFile(…, "utf8") would replace bytes that are not UTF-8 instead of throwing. */
function decode(bytes: Buffer): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}
