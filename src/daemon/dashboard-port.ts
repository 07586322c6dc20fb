import { join } from "node:path";
import type { Snapshot } from "../config/snapshot.ts";
import type { Status } from "../control/status.ts";
import type { Tail } from "../control/tail.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Paths } from "../core/paths.ts";
import type { PeerLookup } from "../core/peer-user.ts";
import { version } from "../core/version.ts";
import { Dashboard } from "../dashboard/dashboard.ts";
import { createLogReader } from "../dashboard/log-reader.ts";
import { readPageFiles } from "../dashboard/page-files.ts";
import { createSessionFile } from "../dashboard/session-file.ts";
import type { Prober } from "../doctor/tool-probes.ts";
import type { Mirror } from "../mirror/mirror.ts";
import { authority, type Port } from "../proxy/server.ts";
import { openIndexForReading } from "../usage/index/database.ts";
import type { UsageServices } from "./usage-services.ts";

export interface DashboardPortDeps {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly log: Logger;
  readonly services: UsageServices;
  readonly mirror: Mirror;
  readonly tail: Tail;
  readonly prober: Pick<Prober, "models">;
  readonly status: () => Promise<Status>;
  readonly snapshot: () => Snapshot;
  readonly reload: { refresh(force: boolean): Promise<void> };
  readonly sandbox: () => boolean;
  /** The port that tools call. */
  readonly port: Pick<Port, "port">;
  readonly peers: PeerLookup;
}

/** The page where the owner looks on. Closed, it costs nothing but the memory of its files. */
export function createDashboardPort(deps: DashboardPortDeps): Dashboard {
  const { paths, clock, services, snapshot, port, peers, prober, reload, ...rest } = deps;
  return new Dashboard({
    ...{ clock, snapshot, ...rest },
    version: version(),
    files: readPageFiles(),
    reader: createLogReader(
      (patienceMs) => openIndexForReading(paths.index, patienceMs),
      services.usage,
      clock,
    ),
    inFlight: services.inFlight,
    models: (tool) => prober.models(tool),
    refresh: () => reload.refresh(false),
    config: paths.config,
    // What `use` names as well, for as long as it is bound.
    origin: () => `http://${authority(snapshot().config.listen.host, port.port)}`,
    settings: () => snapshot().config.dashboard,
    peers,
    run: paths.run,
    // While the daemon restarts, another user could take the port and be shown a page's token. Where a connection's user
    // cannot be told, a token must not be good afterwards.
    kept: peers.supported ? createSessionFile(join(paths.run, "dashboard-sessions.json")) : null,
  });
}
