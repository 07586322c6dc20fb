import type { Logger } from "../../../logger.ts";
import type { Entry } from "./book.ts";

/** Counts what found no room, or was not taken. Of a refusal nothing went to a gateway: no money is missing with it. */
export interface Losses {
  readonly records: number;
  readonly refusals: number;
  count(entry: Entry): void;
  /** Says what was lost since the last time. */
  tell(): void;
}

export function createLosses(log: Logger): Losses {
  const lost = { close: 0, add: 0 };
  const told = { close: 0, add: 0 };

  return {
    get records() {
      return lost.close;
    },
    get refusals() {
      return lost.add;
    },
    count({ kind }) {
      if (kind !== "open") lost[kind] += 1;
    },
    tell() {
      if (lost.close > told.close) log.error({ records: lost.close - told.close }, "usage records were lost");
      if (lost.add > told.add) log.warn({ refusals: lost.add - told.add }, "refusals were not recorded");
      Object.assign(told, lost);
    },
  };
}
