import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import { asFields, numberAt, parseObject } from "../core/json.ts";
import type { Logger } from "../core/log.ts";
import { readOwnFile } from "../core/own-file.ts";
import { writePrivateFile } from "../core/private-file.ts";
import { MINUTE_MS } from "../core/units.ts";

/** The file is written when a token is first used, and then at most this often. */
const WRITE_EVERY_MS = MINUTE_MS;

interface TokenUsesDeps {
  readonly file: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Whether some tool has a token with this hash. */
  readonly isKnown: (hash: string) => boolean;
  /** When config.yaml was last changed, in case a token was revoked while keybearer was stopped; null: unknown. */
  readonly configChangedAt: () => number | null;
}

/** Only the newest revoked tokens are remembered. */
const MAX_REVOKED = 200;

/** When each token was last used or was revoked, by its hash. Kept in a file, so that it survives restarts. */
export class TokenUses {
  readonly #deps: TokenUsesDeps;
  readonly #uses: Map<string, number>;
  /** The last ones at the end. */
  readonly #revoked: Map<string, number>;
  #writtenAt = Number.NEGATIVE_INFINITY;
  #isWritten = true;
  #writing: Promise<unknown> = Promise.resolve();

  constructor(deps: TokenUsesDeps) {
    this.#deps = deps;
    const { uses, revoked } = readTimes(deps.file);
    this.#uses = new Map(Object.entries(uses));
    this.#revoked = new Map(Object.entries(revoked));
  }

  /** When this token was revoked; null: it was not, or that was too long ago. */
  revokedAt(hash: string): number | null {
    return this.#revoked.get(hash) ?? null;
  }

  /** config.yaml changed: notes which tokens are gone, and which are back. @param before hashes that were known until now */
  follow(before: Iterable<string>): void {
    const { isKnown, clock, log } = this.#deps;
    const revoked = [...before].filter((hash) => !isKnown(hash));
    const returned = [...this.#revoked.keys()].filter(isKnown);
    if (revoked.length + returned.length === 0) return;
    for (const hash of revoked) this.#revoke(hash, clock.now());
    for (const hash of returned) this.#revoked.delete(hash);
    background(this.#write(), log, "writing which tokens were revoked");
  }

  /** At a start: tokens that were used before and are gone were revoked while keybearer was stopped. */
  followStart(): void {
    const { isKnown, clock, configChangedAt } = this.#deps;
    const now = clock.now();
    for (const [hash, usedAt] of this.#uses) {
      if (isKnown(hash)) continue;
      const changedAt = configChangedAt() ?? now;
      this.#revoke(hash, changedAt > usedAt && changedAt < now ? changedAt : now);
      this.#isWritten = false;
    }
    for (const hash of [...this.#revoked.keys()].filter(isKnown)) this.#revoked.delete(hash);
  }

  #revoke(hash: string, at: number): void {
    this.#uses.delete(hash);
    this.#revoked.delete(hash);
    this.#revoked.set(hash, at);
    const [oldest] = this.#revoked.keys();
    if (this.#revoked.size > MAX_REVOKED && oldest !== undefined) this.#revoked.delete(oldest);
  }

  note(hash: string, now: number): void {
    const isFirst = !this.#uses.has(hash);
    this.#uses.set(hash, now);
    this.#isWritten = false;
    if (isFirst || this.#deps.clock.elapsed() - this.#writtenAt >= WRITE_EVERY_MS)
      background(this.#write(), this.#deps.log, "writing when tokens were last used");
  }

  async stop(): Promise<void> {
    if (!this.#isWritten) await this.#write();
    await this.#writing;
  }

  #write(): Promise<unknown> {
    const { file, clock } = this.#deps;
    // Also after a failure: a full disk must not cost every request an attempt.
    this.#writtenAt = clock.elapsed();
    this.#isWritten = true;
    const revoked = [...this.#revoked].map(([hash, at]) => [hash, { revoked_at: at }] as const);
    const text = `${JSON.stringify(Object.fromEntries([...this.#uses, ...revoked]), null, 2)}\n`;
    // One after the other, so that an older text does not replace a newer one.
    const written = this.#writing.catch(() => {}).then(() => writePrivateFile(file, text));
    this.#writing = written.catch(() => {});
    return written;
  }
}

const MAX_BYTES = 16 * 1024 * 1024;

/** The times of the last uses by hash. */
export function readTokenUses(file: string): Record<string, number> {
  return readTimes(file).uses;
}

/** A missing or damaged file means that nothing is known. */
function readTimes(file: string): {
  readonly uses: Record<string, number>;
  readonly revoked: Record<string, number>;
} {
  const uses: Record<string, number> = {};
  const revoked: Record<string, number> = {};
  try {
    for (const [hash, entry] of Object.entries(asFields(parseObject(readOwnFile(file, MAX_BYTES) ?? "")))) {
      const revokedAt = numberAt(entry, "revoked_at");
      if (typeof entry === "number") uses[hash] = entry;
      else if (revokedAt !== null) revoked[hash] = revokedAt;
    }
  } catch {
    // These times are only shown, so they are not worth a failed start.
  }
  return { uses, revoked };
}
