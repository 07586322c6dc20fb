import type { Clock } from "../../clock.ts";
import type { Logger } from "../../logger.ts";
import type { Ledger } from "../../usage/ledger/ledger.ts";
import { numberIn } from "../../usage/ledger/raw-row.ts";
import { claimConsole, coverFrom } from "../store/facts.ts";
import type { Watched } from "./connect.ts";

interface BeginningMeans {
  readonly clock: Clock;
  readonly log: Logger;
  readonly ledger: Pick<Ledger, "ask">;
}

const DAY_MS = 86_400_000;
/** The first sync goes back so far, or to where our own log begins. */
const HISTORY_MS = 30 * DAY_MS;

/** Before anything of a console is read: what is known under this name may be another one's. */
export function claimFor({ name, baseUrl, console }: Watched, { ledger, clock, log }: BeginningMeans): void {
  const origins = [baseUrl, console.url].map((address) => new URL(address).origin).join(" ");
  if (ledger.ask((db) => claimConsole(db, name, origins, clock.now())) === true)
    log.warn(
      { gateway: name },
      "the gateway or its console is another one than before: its rows are read anew",
    );
}

/** How far back the first walk goes; what is older of ours is never missing. */
export function firstDay(gateway: string, { ledger, clock }: BeginningMeans): number {
  const now = clock.now();
  return (
    ledger.ask((db) => {
      const oldest = db
        .prepare("SELECT min(started_at) FROM log.records WHERE gateway = ? AND end IS NOT NULL")
        .raw();
      const since = Math.min(now - HISTORY_MS, (numberIn(oldest.get(gateway)) ?? now) - DAY_MS);
      coverFrom(db, gateway, since, now);
      return since;
    }) ?? now - HISTORY_MS
  );
}
