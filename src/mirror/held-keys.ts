import { setTimeout as pause } from "node:timers/promises";
import type { Clock } from "../clock.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { heldNow } from "./held-here.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { heldKeyName, holdKeys } from "./store/keys.ts";
import { forgetConsole } from "./store/rows.ts";
import type { MirrorUsage } from "./usage.ts";

interface HeldKeysDeps {
  readonly clock: Clock;
  readonly snapshot: () => Snapshot;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly usage: Pick<MirrorUsage, "append" | "catchUp">;
}

const RETRY_MS = 5000;

/** Records from when to when each key is held here, also in the journal: that tells a leak from earlier use. */
export class HeldKeys {
  readonly #deps: HeldKeysDeps;
  /** Gateways to forget as soon as the database can be written. */
  readonly #toForget = new Set<string>();
  /** When keys came that could not be written yet: a leak may show before they can. */
  readonly #unwritten = new Map<string, number>();

  constructor(deps: HeldKeysDeps) {
    this.#deps = deps;
  }

  /** false: the database cannot be written now. */
  record(snapshot: Snapshot): boolean {
    const { database, usage, clock } = this.#deps;
    const now = clock.now();
    const held = heldNow(snapshot);
    const lines = database.ask((db) => [
      ...[...this.#toForget].flatMap((gateway) => forgetConsole(db, gateway, now, false)),
      ...holdKeys(db, held, now, this.#unwritten),
    ]);
    if (lines !== null) {
      this.#toForget.clear();
      this.#unwritten.clear();
      for (const line of lines) usage.append(line);
      return true;
    }
    const names = new Set(held.map(heldKeyName));
    for (const name of this.#unwritten.keys()) if (!names.has(name)) this.#unwritten.delete(name);
    for (const name of names) if (!this.#unwritten.has(name)) this.#unwritten.set(name, now);
    return false;
  }

  /** At a start there may be no complete index yet. A sync makes one at once; without a console there is no hurry. */
  async recordLater(signal: AbortSignal): Promise<void> {
    try {
      await pause(RETRY_MS, undefined, { ref: false, signal });
      await this.#deps.usage.catchUp();
    } catch {
      // The mirror stopped, or the index cannot be read: the next sync or configuration tries again.
      return;
    }
    this.record(this.#deps.snapshot());
  }

  /** With the next record() nothing is known of this gateway any more, and its keys are held from then on. */
  forget(gateway: string): void {
    this.#toForget.add(gateway);
    this.#unwritten.clear();
  }
}
