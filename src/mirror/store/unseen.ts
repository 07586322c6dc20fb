import type Database from "libsql";
import { markFrom } from "./changed-days.ts";
import { readFact, writeFact } from "./facts.ts";

/** A key that is held here, and that the last sync did not read. */
export interface UnseenKey {
  /** Fingerprint. */
  readonly key: string;
  /** When it was last read, by our clock; null: never. */
  readonly until: number | null;
  /** no-account: no account that is logged in lists it. not-read: the console allowed no further call. */
  readonly why: "no-account" | "not-read";
}

export function readUnseen(db: Database.Database, gateway: string): readonly UnseenKey[] {
  const text = readFact(db, gateway, "unseen");
  return text === null ? [] : JSON.parse(text);
}

export function writeUnseen(db: Database.Database, gateway: string, unseen: readonly UnseenKey[]): void {
  const before = readUnseen(db, gateway);
  writeFact(db, gateway, "unseen", unseen.length === 0 ? null : JSON.stringify(unseen));
  const isNowOther = (one: UnseenKey) => !unseen.some(({ key, why }) => key === one.key && why === one.why);
  // What could not be called missing can be now.
  if (before.some(isNowOther)) markFrom(db, gateway, 0);
}
