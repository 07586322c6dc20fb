import { existsSync } from "node:fs";
import { uptime } from "node:os";
import type { Config } from "../config/schema.ts";
import type { Controls } from "../control/routes.ts";
import { limitStatuses } from "../control/tool-status.ts";
import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Paths } from "../core/paths.ts";
import type { Ticker } from "../core/ticker.ts";
import type { Limiter } from "../limits/limiter.ts";
import { Prices, readPriceTable } from "../metering/prices.ts";
import { LostRecords } from "../mirror/lost-records.ts";
import { MirrorDatabase } from "../mirror/store/database.ts";
import type { MirrorUsage } from "../mirror/usage.ts";
import { BodyBudget } from "../proxy/body.ts";
import { InFlight } from "../proxy/in-flight.ts";
import type { ReleaseResult, Shared } from "../shared/shared.ts";
import type { Journal } from "../usage/journal/journal.ts";
import { UsageLog } from "../usage/usage-log.ts";

/** What is used, what it cost, and what may still be. */
export interface UsageServices {
  readonly usage: UsageLog;
  readonly journal: Journal;
  readonly limiter: Limiter;
  readonly prices: Prices;
  readonly inFlight: InFlight;
  readonly bodies: BodyBudget;
  readonly mirrorDatabase: MirrorDatabase;
  readonly mirrorUsage: MirrorUsage;
  readonly lostRecords: LostRecords;
}

export function openUsageServices(
  paths: Paths,
  clock: Clock,
  ticker: Ticker,
  log: Logger,
  limiter: Limiter,
  config: () => Config,
): UsageServices {
  const { sync } = config().usage;
  if (existsSync(paths.oldUsage) && !existsSync(paths.usage))
    log.warn(
      { file: paths.oldUsage },
      "the usage log has a new format: history and quota totals start over, and the old file stays as it is",
    );
  const usage = new UsageLog({
    folder: paths.usage,
    index: paths.index,
    clock,
    ticker,
    log,
    sync,
    keep: () => config().usage.keep,
    limiter,
  });
  const { journal } = usage;
  const mirrorDatabase = new MirrorDatabase({ file: paths.mirror, index: paths.index, log });
  const mirrorUsage = mirrorUsageOf(usage);
  const lostRecords = new LostRecords({
    clock,
    ticker,
    log,
    database: mirrorDatabase,
    usage: mirrorUsage,
    journal,
    wasChanged: usage.state().changed !== null,
    bootedAt: clock.now() - uptime() * 1000,
  });
  return {
    usage,
    journal,
    limiter,
    prices: new Prices(readPriceTable()),
    inFlight: new InFlight((tool) => limiter.currentName(tool)),
    bodies: new BodyBudget(),
    mirrorDatabase,
    mirrorUsage,
    lostRecords,
  };
}

/** A comparison waits for the index this long. A rebuild may take longer: the next comparison tries again. */
const MIRROR_CATCH_UP_MS = 60_000;

function mirrorUsageOf(usage: UsageLog): MirrorUsage {
  const { journal } = usage;
  return {
    async catchUp() {
      const { current, waitingFor } = await usage.catchUp(MIRROR_CATCH_UP_MS);
      if (!current) throw new Error(waitingFor ?? "the index is behind");
    },
    amend: (lines) => journal.append(...lines),
    append: (line) => {
      journal.append(line);
    },
    last: () => journal.last(),
  };
}

/** If the journal does not close, its end is not written down either: the next start then checks whether something is missing. */
export async function closeUsageServices({
  usage,
  lostRecords,
  mirrorDatabase,
}: UsageServices): Promise<void> {
  await usage.stop();
  await lostRecords.close();
  mirrorDatabase.close();
}

/** What the owner may do to a tool's running window and its requests in flight. */
export function createAllowances(
  {
    journal,
    limiter,
    inFlight,
    shared,
  }: Pick<UsageServices, "journal" | "limiter" | "inFlight"> & { readonly shared: Pick<Shared, "release"> },
  log: Logger,
  config: () => Config,
): Pick<Controls, "allow" | "release" | "expectRename" | "cut"> {
  return {
    allow(name, { kind, amount, until }, peer) {
      const tool = config().tools[name];
      if (tool === undefined) return null;
      const answer = (problem: string | null) => ({
        tool: name,
        levels: limitStatuses(limiter.levels(tool)),
        problem,
      });
      if (tool.limits[kind].length === 0) return answer(`tool ${name} has no limit on ${kind}`);
      const allowance = { limit: kind, amount, given_at: limiter.now(tool), until };
      // Written first: it must not be forgotten at the next start.
      if (!journal.append({ kind: "lift", tool: name, ...allowance, given_by: peer }))
        return answer(`the usage log cannot be written → ${advice.status()}`);
      limiter.allow(name, allowance);
      const what =
        amount === 0 ? `the extra allowances of ${kind} were taken back` : `one extra allowance of ${kind}`;
      log.warn({ tool: name, kind, amount, until, peer }, `tool ${name}: ${what}`);
      return answer(null);
    },
    async release(name, machine, peer) {
      const tool = config().tools[name];
      if (tool === undefined) return null;
      const released = await shared.release(tool, machine);
      if (released === "released")
        log.warn({ tool: name, machine, peer }, `tool ${name}: what machine ${machine} held was released`);
      const problem = released === "released" ? null : RELEASE_PROBLEMS[released](name, machine);
      return { levels: limitStatuses(limiter.levels(tool)), problem };
    },
    expectRename(name, to, peer) {
      if (config().tools[name] === undefined) return null;
      // A name that is taken: the command's edit is refused, and nothing will be renamed.
      if (config().tools[to] !== undefined) return {};
      limiter.expectRename({ from: name, to });
      log.info({ tool: name, to, peer }, `tool ${name} will be renamed to ${to}`);
      return {};
    },
    cut(name, peer) {
      const cut = inFlight.cut(name);
      if (cut === 0 && config().tools[name] === undefined) return null;
      if (cut > 0) log.warn({ tool: name, cut, peer }, `tool ${name}: requests in flight were cut`);
      return { cut };
    },
  };
}

const RELEASE_PROBLEMS: Readonly<
  Record<Exclude<ReleaseResult, "released">, (tool: string, machine: string) => string>
> = {
  unknown: (_, machine) => `there is no machine ${machine} at the shared store → ${advice.status()}`,
  present: (_, machine) => `machine ${machine} is connected to the shared store, so nothing of it is lost`,
  unreachable: () => `the shared store is not reachable → ${advice.doctor()}`,
  "not shared": (tool) => `tool ${tool} shares its limits with no other machine`,
};
