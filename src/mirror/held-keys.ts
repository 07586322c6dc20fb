import { setTimeout as pause } from "node:timers/promises";
import type { Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import type { Secret } from "../core/secret.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { type HeldKey, heldKeyName, holdKeys } from "./store/keys.ts";
import { forgetConsole } from "./store/rows.ts";
import type { MirrorUsage } from "./usage.ts";

/* Which keys the tools hold, and since when. */

/** A tool of one gateway. */
export interface Holder {
  readonly tool: string;
  /** null: it cannot be read just now. */
  readonly key: Secret | null;
  /** Its key is used elsewhere on purpose. */
  readonly elsewhere: boolean;
}

export function findHolders(gateway: string, snapshot: Snapshot): Holder[] {
  const tools = Object.values(snapshot.config.tools).filter((tool) => tool.gateway === gateway);
  return tools.map((tool) => {
    const key = snapshot.keyOf(tool);
    return {
      tool: tool.name,
      key: key.state === "ready" ? key.key : null,
      elsewhere: tool.keysElsewhere || tool.watchOnly,
    };
  });
}

interface HeldKeysDeps {
  readonly clock: Clock;
  readonly snapshot: () => Snapshot;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly usage: Pick<MirrorUsage, "append" | "catchUp">;
}

const RETRY_MS = 5000;

/** Records from when to when each key is held here, also in the journal. That distinguishes a leak from earlier use. */
export class HeldKeys {
  readonly #deps: HeldKeysDeps;
  /** recordLater() is in flight. */
  #isRecordingLater = false;
  /** Gateways to forget as soon as the database can be written. */
  readonly #toForget = new Set<string>();
  /** When keys came that could not be written yet. A leak may appear before they can. */
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

  /** After a start the index may be incomplete. Tries again a little later. One attempt serves all changes until then. */
  async recordLater(signal: AbortSignal): Promise<void> {
    if (this.#isRecordingLater) return;
    this.#isRecordingLater = true;
    try {
      await pause(RETRY_MS, undefined, { ref: false, signal });
      await this.#deps.usage.catchUp();
    } catch {
      // The mirror stopped, or the index cannot be read: the next sync or configuration tries again.
      return;
    } finally {
      this.#isRecordingLater = false;
    }
    this.record(this.#deps.snapshot());
  }

  /** The next record() deletes what is known of this gateway. Its keys are held from then on. */
  forget(gateway: string): void {
    this.#toForget.add(gateway);
    this.#unwritten.clear();
  }
}

/** At all gateways. */
function heldNow(snapshot: Snapshot): HeldKey[] {
  return Object.keys(snapshot.config.gateways).flatMap((gateway) =>
    findHolders(gateway, snapshot).map(({ tool, key }) => ({ gateway, tool, key: key?.fingerprint ?? null })),
  );
}
