import { uptime } from "node:os";
import type { Config } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Paths } from "../core/paths.ts";
import type { Ticker } from "../core/ticker.ts";
import { MINUTE_MS } from "../core/units.ts";
import type { Limiter } from "../limits/limiter.ts";
import { Prices, readPriceTable } from "../metering/prices.ts";
import { LostRecords } from "../mirror/lost-records.ts";
import { MirrorDatabase } from "../mirror/store/database.ts";
import type { MirrorUsage } from "../mirror/usage.ts";
import { BodyBudget } from "../proxy/body.ts";
import { InFlight } from "../proxy/in-flight.ts";
import type { Journal } from "../usage/journal/journal.ts";
import { UsageLog } from "../usage/usage-log.ts";

/** What is used, what it cost, and what may still be. */
interface UsageServices {
  readonly usage: UsageLog;
  readonly journal: Journal;
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
  const mirrorUsage = createMirrorUsage(usage);
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
    prices: new Prices(readPriceTable()),
    inFlight: new InFlight((tool) => limiter.currentName(tool)),
    bodies: new BodyBudget(),
    mirrorDatabase,
    mirrorUsage,
    lostRecords,
  };
}

/** A comparison waits for the index this long. A rebuild may take longer: the next comparison tries again. */
const MIRROR_CATCH_UP_MS = MINUTE_MS;

function createMirrorUsage(usage: UsageLog): MirrorUsage {
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
