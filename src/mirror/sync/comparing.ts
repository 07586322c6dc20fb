import { setImmediate as turn } from "node:timers/promises";
import type { Clock } from "../../clock.ts";
import type { Ledger } from "../../usage/ledger/ledger.ts";
import type { ConsoleAdapter } from "../consoles/console.ts";
import { ConsoleFault } from "../consoles/fault.ts";
import type { LogEnd } from "../log-end.ts";
import { type JudgingMeans, judgeStep } from "../store/judging.ts";
import type { Correction } from "../store/verdicts.ts";

export interface ComparingMeans {
  readonly gateway: string;
  readonly clock: Clock;
  readonly ledger: Pick<Ledger, "ask">;
  readonly skew: () => number;
  readonly priceOf: JudgingMeans["priceOf"];
  /** See JudgingMeans. */
  readonly unwatched: LogEnd["unwatched"];
  /** A record took the console's numbers. */
  readonly onCorrected: (correction: Correction) => void;
  /** Everything has its verdict as of now. */
  readonly onJudged: () => void;
}

/** Gives rows and records their verdicts, in small steps beside the requests, and again when what is pending is due. */
export interface Comparing {
  /** Throws a ConsoleFault where the log says no. */
  compare(adapter: Pick<ConsoleAdapter, "idNames" | "idsAreOwn">): Promise<void>;
  stop(): void;
}

/** Whatever is due, it is not looked at more often. */
const SHORTEST_MS = 1000;
/** Timers hold no longer, and the clock on the wall may be set. */
const LONGEST_MS = 10 * 60_000;

export function createComparing(means: ComparingMeans): Comparing {
  const { gateway, clock, ledger } = means;
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let running: Promise<void> | null = null;

  async function judgeAll(adapter: Pick<ConsoleAdapter, "idNames" | "idsAreOwn">): Promise<void> {
    for (;;) {
      const { idNames, idsAreOwn } = adapter;
      const { skew, priceOf } = means;
      const step = ledger.ask((db) => {
        const judged = judgeStep(db, gateway, {
          now: clock.now(),
          skew: skew(),
          idNames,
          idsAreOwn,
          priceOf,
          unwatched: means.unwatched(db),
        });
        return judged;
      });
      if (stopped) return;
      // What nobody compares must not look as if all were well.
      if (step === null)
        throw new ConsoleFault("failing", "could not be compared: the usage log cannot be read or written");
      for (const correction of step.corrections) means.onCorrected(correction);
      if (step.done) {
        wait(step.again, adapter);
        means.onJudged();
        return;
      }
      await turn();
    }
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
