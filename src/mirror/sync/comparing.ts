import { setImmediate as turn } from "node:timers/promises";
import type { Clock } from "../../clock.ts";
import type { AmendLine } from "../../usage/journal/lines.ts";
import type { ConsoleAdapter } from "../consoles/console.ts";
import { ConsoleFault } from "../consoles/fault.ts";
import type { LogEnd } from "../log-end.ts";
import type { MirrorDatabase } from "../store/database.ts";
import { type JudgingMeans, judgeStep } from "../store/judging.ts";
import { pruneStep } from "../store/prune.ts";
import { type Correction, correctionOf } from "../store/verdicts.ts";
import { catchUp, type MirrorUsage } from "../usage.ts";

export interface ComparingMeans {
  readonly gateway: string;
  readonly clock: Clock;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly usage: Pick<MirrorUsage, "catchUp" | "amend" | "last">;
  readonly logEnd: Pick<LogEnd, "unwatched">;
  readonly skew: () => number;
  readonly priceOf: JudgingMeans["priceOf"];
  /** A record took the console's numbers. */
  readonly onCorrected: (correction: Correction) => void;
  /** Everything has its verdict as of now. */
  readonly onJudged: () => void;
}

export type ComparedAdapter = Pick<ConsoleAdapter, "idNames" | "billsFailures" | "socketRowsHaveIds">;

/** Gives rows and records their verdicts, in small steps beside the requests, and again when what is pending is due. */
export interface Comparing {
  /** Throws a ConsoleFault where the log says no. */
  compare(adapter: ComparedAdapter): Promise<void>;
  stop(): void;
}

/** Whatever is due, it is not looked at more often. */
const SHORTEST_MS = 1000;
/** Timers hold no longer, and the clock on the wall may be set. */
const LONGEST_MS = 10 * 60_000;

export function createComparing(means: ComparingMeans): Comparing {
  const { gateway, clock, database, usage, logEnd } = means;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let running: Promise<void> | null = null;

  async function judgeAll(adapter: ComparedAdapter): Promise<void> {
    const { idNames, billsFailures, socketRowsHaveIds } = adapter;
    let newest = await catchUp(usage);
    while (!stopped) {
      const step = database.ask((db) =>
        judgeStep(db, gateway, {
          now: clock.now(),
          skew: means.skew(),
          idNames,
          billsFailures,
          socketRowsHaveIds,
          priceOf: means.priceOf,
          amend,
          unwatched: logEnd.unwatched(db, newest),
        }),
      );
      // What nobody compares must not look as if all were well.
      if (step === null)
        throw new ConsoleFault("failing", "could not be compared: the usage log cannot be read or written");
      if (step.done) {
        wait(step.again, adapter);
        means.onJudged();
        await prune();
        return;
      }
      await turn();
      // Else the next step would find records as they were, and amend them once more.
      if (step.amendments.length > 0) newest = await catchUp(usage);
    }
  }

  /** Limits follow as soon as the lines are in the journal: at the next start they are counted from there. */
  function amend(lines: readonly AmendLine[]): void {
    if (!usage.amend(lines))
      throw new ConsoleFault("failing", "could not be compared: the usage log cannot be written");
    for (const line of lines) {
      const correction = correctionOf(line);
      if (correction !== null) means.onCorrected(correction);
    }
  }

  async function prune(): Promise<void> {
    while (!stopped && database.ask(pruneStep) === true) await turn();
  }

  function wait(due: number | null, adapter: Parameters<Comparing["compare"]>[0]): void {
    clearTimeout(timer);
    if (due === null || stopped) return;
    const patience = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, due - clock.now()));
    // Should it fail, the next sync says so.
    timer = setTimeout(() => void compare(adapter).catch(() => {}), patience).unref();
  }

  async function compare(adapter: Parameters<Comparing["compare"]>[0]): Promise<void> {
    // One after the other, so that the last one has seen everything.
    const before = running?.catch(() => {}) ?? Promise.resolve();
    const mine = before.then(() => judgeAll(adapter));
    running = mine;
    await mine;
    if (running === mine) running = null;
  }

  return {
    compare,
    stop() {
      stopped = true;
      clearTimeout(timer);
    },
  };
}
