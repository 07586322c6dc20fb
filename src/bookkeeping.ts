import { uptime } from "node:os";
import { join } from "node:path";
import type { Beat } from "./beat.ts";
import type { Clock } from "./clock.ts";
import type { Config, Tool } from "./config/shape.ts";
import type { AskedLift, CutAnswer, LiftAnswer } from "./control/routes.ts";
import { limitStatuses } from "./control/tool-status.ts";
import { createLimiter, type Limiter } from "./limits/limiter.ts";
import { systemCalendar } from "./limits/windows.ts";
import type { Logger } from "./logger.ts";
import { createLogEnd, type LogEnd } from "./mirror/log-end.ts";
import { createMirror, type Mirror } from "./mirror/mirror.ts";
import { MirrorDatabase } from "./mirror/store/database.ts";
import type { MirrorUsage } from "./mirror/usage.ts";
import type { WatchMeans as MirrorMeans } from "./mirror/watch.ts";
import type { Places } from "./places.ts";
import { BodyBudget } from "./proxy/body-budget.ts";
import { createRunning, type Running } from "./proxy/running.ts";
import { createLedger, type Ledger } from "./usage/ledger/ledger.ts";
import { readSpent, writeLift } from "./usage/ledger/spent.ts";
import { createPrices, type Prices } from "./usage/prices.ts";
import { createStrangers, type Strangers } from "./usage/strangers.ts";

/** What is used, what it cost, and what may still be. */
export interface Books {
  readonly ledger: Ledger;
  readonly mirrorDatabase: MirrorDatabase;
  readonly logEnd: LogEnd;
  readonly prices: Prices;
  readonly strangers: Strangers;
  readonly limiter: Limiter;
  readonly running: Running;
  readonly bodies: BodyBudget;
}

export interface BooksMeans {
  readonly places: Places;
  readonly clock: Clock;
  readonly beat: Beat;
  readonly log: Logger;
  readonly config: () => Config;
  /** Records of an earlier log were saved. */
  readonly onSaved: () => void;
}

export function openBooks({ places, clock, beat, log, config, onSaved }: BooksMeans): Books {
  const { sync } = config().usage;
  const ledger = createLedger({
    file: places.usage,
    clock,
    beat,
    log,
    keep: () => config().usage.keep,
    sync,
    // What was spent is known only now: counted from what a damaged log had left, an allowance would be given again.
    onSaved: () => {
      limiter.restoreAgain();
      onSaved();
    },
  });
  const mirrorDatabase = new MirrorDatabase({
    file: join(places.state, "mirror.db"),
    index: join(places.state, "index.db"),
    log,
  });
  const logEnd = createLogEnd({
    ...{ file: places.logEnd, clock, beat, log, database: mirrorDatabase, usage: NO_JOURNAL, sync },
    bootedAt: clock.now() - uptime() * 1000,
  });
  const limiter = createLimiter({
    clock,
    calendar: systemCalendar,
    spent: ({ name }, spans) => ledger.ask((db) => readSpent(db, name, spans)),
  });
  const [prices, strangers, running] = [createPrices(), createStrangers(), createRunning()];
  const bodies = new BodyBudget();
  return { ledger, mirrorDatabase, logEnd, limiter, prices, strangers, running, bodies };
}

/** TO BE REPLACED when the journal is wired in: see MirrorUsage for what the composition root must pass instead. */
const NO_JOURNAL: MirrorUsage = {
  catchUp: () => Promise.reject(new Error("there is no journal yet")),
  amend: () => false,
  append: () => {},
  last: () => null,
};

/** Our log beside the consoles' own: what they know better counts under the limits, too. */
export function openMirror(
  { mirrorDatabase: database, logEnd, prices, limiter }: Books,
  means: Omit<MirrorMeans, "database" | "usage" | "logEnd" | "prices" | "onCorrected">,
): Mirror {
  const onCorrected: MirrorMeans["onCorrected"] = (correction) =>
    limiter.correct(correction.tool, correction);
  return createMirror({ ...means, database, usage: NO_JOURNAL, logEnd, prices, onCorrected });
}

/** Where the ledger does not close, its end is not sealed either: the next start then looks whether something is missing. */
export async function closeBooks({ ledger, mirrorDatabase, logEnd }: Books): Promise<void> {
  const seal = logEnd.stop();
  await ledger.stop();
  await seal();
  mirrorDatabase.close();
}

/** What the owner may do to a tool's running window and its requests under way. */
export interface Allowances {
  lift(name: string, asked: AskedLift, peer: string): LiftAnswer | null;
  cut(name: string, peer: string): CutAnswer | null;
}

export function createAllowances(books: Books, { clock, log, config }: BooksMeans): Allowances {
  const { ledger, limiter, running } = books;
  return {
    lift(name, { kind, amount, until }, peer) {
      const tool = config().tools[name];
      if (tool === undefined) return null;
      const answer = (problem: string | null) => ({
        tool: name,
        levels: limitStatuses(tool, limiter.levels(tool)),
        problem,
      });
      if (tool.limits[kind].length === 0) return answer(`tool ${name} has no limit on ${kind}`);
      const lift = { kind, amount, givenAt: clock.now(), until };
      // Written down first: it must not be forgotten at the next start.
      const written = ledger.ask((db) => writeLift(db, name, lift, peer));
      if (written === null) return answer("the usage log cannot be written → keybearer status");
      limiter.lift(tool, lift);
      log.warn({ tool: name, kind, amount, until, peer }, `tool ${name}: one extra allowance of ${kind}`);
      return answer(null);
    },
    cut(name, peer) {
      const cut = running.cut(name);
      if (cut === 0 && !isTool(config().tools[name])) return null;
      if (cut > 0) log.warn({ tool: name, cut, peer }, `tool ${name}: requests under way were cut`);
      return { cut };
    },
  };
}

function isTool(tool: Tool | undefined): boolean {
  return tool !== undefined;
}
