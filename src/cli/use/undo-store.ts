import { createHash } from "node:crypto";
import { chmod, mkdir, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Writable } from "../../clients/settings-files.ts";
import type { Clock } from "../../core/clock.ts";
import { writePrivateFile } from "../../core/private-file.ts";

/** What is known of one time that a client's settings were written. */
export interface Kept {
  /** Names its files. */
  readonly id: string;
  /** The tool it was pointed at. */
  readonly tool: string;
  readonly file: string;
  /** null: there was no such file before. */
  readonly before: string | null;
  /** Of the file before; for one that has gone since. */
  readonly mode: number;
  /** Digest of the text that was written, by which a later change is noticed. */
  readonly written: string;
}

/** Old settings, for `--undo`. They may hold a real key: for nobody else to read, and the oldest go. */
export interface UndoStore {
  /** Throws where it cannot be kept. */
  keep(client: Writable, what: Omit<Kept, "id">): Promise<Kept>;
  /** null: none is there. Throws where it is damaged. */
  newest(client: Writable): Promise<Kept | null>;
  drop(kept: Kept): Promise<void>;
}

const MOST = 5;

export function createUndoStore(state: string, clock: Clock): UndoStore {
  const folder = join(state, "undo");
  const about = (id: string) => join(folder, `${id}.json`);
  const old = (id: string) => join(folder, `${id}.old`);
  const drop = async (id: string) => {
    await rm(about(id), { force: true });
    await rm(old(id), { force: true });
  };

  /** Newest first. */
  async function idsOf(client: Writable, ending: "json" | "old"): Promise<string[]> {
    const names = await readdir(folder).catch(() => []);
    const pattern = new RegExp(`^(${client}-\\d{4}-[\\d-]+T[\\d-]+Z)\\.${ending}$`);
    return names
      .flatMap((name) => pattern.exec(name)?.[1] ?? [])
      .toSorted()
      .toReversed();
  }

  return {
    async keep(client, { tool, file, before, mode, written }) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await chmod(folder, 0o700);
      const taken = new Set([...(await idsOf(client, "json")), ...(await idsOf(client, "old"))]);
      let now = clock.now();
      while (taken.has(idFor(client, now))) now += 1;
      const id = idFor(client, now);
      // The old file as it was, so that a person can also copy it back; what is known of it beside it, and last.
      if (before !== null) await writePrivateFile(old(id), before);
      const facts = { version: 1, tool, file, existed: before !== null, mode, written };
      await writePrivateFile(about(id), `${JSON.stringify(facts, null, 1)}\n`);
      for (const each of [...taken]
        .toSorted()
        .toReversed()
        .slice(MOST - 1))
        await drop(each);
      return { id, tool, file, before, mode, written };
    },
    async newest(client) {
      const [id] = await idsOf(client, "json");
      if (id === undefined) return null;
      const facts = factsIn(await readFile(about(id), "utf8"));
      if (facts === null) throw new Error(`${about(id)} is damaged: what was there before is in ${old(id)}`);
      const { existed, ...known } = facts;
      const before = existed ? bare(await readFile(old(id))) : null;
      return { id, before, ...known };
    },
    drop: ({ id }) => drop(id),
  };
}

export function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function idFor(client: Writable, now: number): string {
  return `${client}-${new Date(now).toISOString().replace(/[:.]/g, "-")}`;
}

/** readFile would keep a mark at the beginning too, but replace what is no UTF-8. */
function bare(bytes: Buffer): string {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

function factsIn(text: string): (Omit<Kept, "id" | "before"> & { readonly existed: boolean }) | null {
  let facts: Readonly<Record<string, unknown>>;
  try {
    facts = Object(JSON.parse(text));
  } catch {
    return null;
  }
  const { version, tool, file, existed, mode, written } = facts;
  const whole =
    version === 1 &&
    typeof tool === "string" &&
    typeof file === "string" &&
    typeof existed === "boolean" &&
    typeof mode === "number" &&
    typeof written === "string";
  return whole ? { tool, file, existed, mode, written } : null;
}
