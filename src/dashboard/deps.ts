import type { ConfigProblem } from "../config/problems.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Controls } from "../control/routes.ts";
import type { Tail } from "../control/tail.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Paths } from "../core/paths.ts";
import type { PeerLookup } from "../core/peer-user.ts";
import type { InFlight } from "../proxy/in-flight.ts";
import type { Port } from "../proxy/server.ts";
import type { UsageLog } from "../usage/usage-log.ts";

/** What the dashboard needs from the daemon. */
export interface DashboardDeps {
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly log: Logger;
  readonly reload: {
    readonly snapshot: Snapshot;
    refresh(force: boolean): Promise<void>;
    /** Of config.yaml as it is now, if it is not the one in force. */
    readonly problems: readonly ConfigProblem[];
  };
  readonly isSandbox: () => boolean;
  readonly usage: Pick<UsageLog, "ask">;
  readonly inFlight: Pick<InFlight, "list" | "size">;
  readonly tail: Pick<Tail, "subscribe">;
  /** The port that tools call. */
  readonly port: Pick<Port, "port">;
  readonly peers: PeerLookup;
  /** What the control socket offers. The dashboard shows and does the same. */
  readonly controls: () => Controls;
}
