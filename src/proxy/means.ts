import type { Snapshot } from "../config/snapshot.ts";
import type { Peers } from "../identity/peer-user.ts";
import type { Owners } from "../identity/process.ts";
import type { Forwarder } from "./forward.ts";
import type { SettleMeans } from "./settle.ts";
import type { Ways } from "./ways.ts";

/** What serving a request needs, made in daemon.ts and passed in. */
export interface HandleMeans extends SettleMeans {
  readonly snapshot: () => Snapshot;
  readonly forwarder: Forwarder;
  readonly ways: Ways;
  readonly owners: Pick<Owners, "of">;
  readonly peers: Peers;
  /** Every `host:port` under which tools may call. */
  readonly hosts: () => readonly string[];
  readonly stopping: () => boolean;
  /** The gateway is the embedded sandbox, and its answers say so. */
  readonly sandbox: () => boolean;
}
