import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import { readOwnFile } from "../core/own-file.ts";
import { writePrivateFile } from "../core/private-file.ts";

/** The file is written when a token is first used, and then at most this often. */
const WRITE_EVERY_MS = 10_000;

export interface TokenUsesDeps {
  readonly file: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Whether some tool has a token with this hash. The others are forgotten. */
  readonly isKnown: (hash: string) => boolean;
}

/** When each token was last used, by its hash. Kept in a file, so that it survives restarts. */
export class TokenUses {
  readonly #deps: TokenUsesDeps;
  readonly #uses: Map<string, number>;
  #writtenAt = Number.NEGATIVE_INFINITY;
  #isWritten = true;
  #writing: Promise<unknown> = Promise.resolve();

  constructor(deps: TokenUsesDeps) {
    this.#deps = deps;
    this.#uses = new Map(Object.entries(readTokenUses(deps.file)));
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
    const { file, clock, isKnown } = this.#deps;
    // Also after a failure: a full disk must not cost every request an attempt.
    this.#writtenAt = clock.elapsed();
    this.#isWritten = true;
    for (const hash of this.#uses.keys()) if (!isKnown(hash)) this.#uses.delete(hash);
    const text = `${JSON.stringify(Object.fromEntries(this.#uses), null, 2)}\n`;
    // One after the other, so that an older text does not replace a newer one.
    const written = this.#writing.catch(() => {}).then(() => writePrivateFile(file, text));
    this.#writing = written.catch(() => {});
    return written;
  }
}

const MAX_BYTES = 16 * 1024 * 1024;

/** The times by hash. A missing or damaged file means that nothing is known. */
export function readTokenUses(file: string): Record<string, number> {
  try {
    const uses: unknown = JSON.parse(readOwnFile(file, MAX_BYTES) ?? "{}");
    const entries = Object.entries(uses ?? {});
    return Object.fromEntries(entries.filter(([, time]) => typeof time === "number"));
  } catch {
    // A last use is only shown, so it is not worth a failed start.
    return {};
  }
}
