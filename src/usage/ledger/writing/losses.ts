import type { Logger } from "../../../logger.ts";
import type { Entry, Poisoned } from "./book.ts";

/** Counts what found no room, or was not taken. Of a refusal nothing went to a gateway: no money is missing with it. */
export interface Losses {
  readonly records: number;
  readonly refusals: number;
  count(entry: Entry): void;
  /** Counts what the log does not take, whatever is tried, and says why. */
  reject(poisoned: readonly Poisoned[]): void;
  /** Says what was lost since the last time. */
  tell(): void;
}

export function createLosses(log: Logger): Losses {
  const lost = { close: 0, add: 0 };
  const told = { close: 0, add: 0 };

  function count({ kind }: Entry): void {
    if (kind === "add") lost.add += 1;
    else if (kind !== "open") lost.close += 1;
  }

  return {
    get records() {
      return lost.close;
    },
    get refusals() {
      return lost.add;
    },
    count,
    reject(poisoned) {
      for (const { entry, words } of poisoned) {
        log.error({ id: entry.opening.id, reason: words }, "the usage log does not take this record");
        count(entry);
      }
    },
    tell() {
      if (lost.close > told.close) log.error({ records: lost.close - told.close }, "usage records were lost");
      if (lost.add > told.add) log.warn({ refusals: lost.add - told.add }, "refusals were not recorded");
      Object.assign(told, lost);
    },
  };
}
