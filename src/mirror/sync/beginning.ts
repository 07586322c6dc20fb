import type { Clock } from "../../clock.ts";
import type { Logger } from "../../logger.ts";
import type { MirrorDatabase } from "../store/database.ts";
import { coverFrom } from "../store/facts.ts";
import { numberIn } from "../store/query.ts";
import { claimConsole } from "../store/rows.ts";
import type { MirrorUsage } from "../usage.ts";
import type { ConsoleGateway } from "./connect.ts";

interface BeginningMeans {
  readonly clock: Clock;
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly usage: Pick<MirrorUsage, "append">;
}

const DAY_MS = 86_400_000;
/** The first sync goes back so far, or to where our own log begins. */
const HISTORY_MS = 30 * DAY_MS;

/** Before anything of a console is read: what is known under this name may be another one's. */
export function claimFor({ name, baseUrl, console }: ConsoleGateway, means: BeginningMeans): void {
  const { database, usage, clock, log } = means;
  const origins = [baseUrl, console.url].map((address) => new URL(address).origin).join(" ");
  const held = database.ask((db) => claimConsole(db, name, origins, clock.now()));
  if (held === null) return;
  for (const line of held) usage.append(line);
  log.warn(
    { gateway: name },
    "the gateway or its console is another one than before: its rows are read anew",
  );
}

/** How far back the first walk goes; what is older of ours is never missing. */
export function firstDay(
  gateway: string,
  { database, clock }: Pick<BeginningMeans, "database" | "clock">,
): number {
  const now = clock.now();
  return (
    database.ask((db) => {
      const oldest = db
        .prepare("SELECT min(started_at) FROM usage.records WHERE gateway = ? AND end IS NOT NULL")
        .raw();
      const since = Math.min(now - HISTORY_MS, (numberIn(oldest.get(gateway)) ?? now) - DAY_MS);
      coverFrom(db, gateway, since, now);
      return since;
    }) ?? now - HISTORY_MS
  );
}
