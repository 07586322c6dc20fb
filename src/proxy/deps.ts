import type { Gateway } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { PeerLookup } from "../core/peer-user.ts";
import type { ProcessLookup } from "../core/process-lookup.ts";
import type { Secret } from "../core/secret.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { Prices } from "../metering/prices.ts";
import type { Journal } from "../usage/journal/journal.ts";
import type { Closing, UsageRecord } from "../usage/record.ts";
import type { BodyBudget } from "./body.ts";
import type { Call } from "./call.ts";
import type { GatewayHealth } from "./gateway-health.ts";
import type { InFlight } from "./in-flight.ts";
import type { Cause } from "./key-health/cause.ts";
import type { KeyHealth } from "./key-health/key-health.ts";
import type { OtherModels } from "./other-models.ts";
import type { Outages } from "./outages.ts";
import type { ProjectLookup } from "./projects.ts";
import type { HeadCache } from "./request-head.ts";
import type { TokenUses } from "./token-uses.ts";
import type { Upstream } from "./upstream.ts";

export interface RequestCounter {
  countRequest(call: Call, closing: Closing): void;
}

/** What the request path needs. The daemon makes it. */
export interface ProxyDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** The configuration in force. */
  readonly snapshot: () => Snapshot;
  readonly heads: HeadCache;
  readonly peers: PeerLookup;
  readonly tokenUses: Pick<TokenUses, "note" | "revokedAt">;
  readonly processLookup: Pick<ProcessLookup, "of">;
  /** null: no configuration has asked for projects so far. */
  readonly projects: () => Pick<ProjectLookup, "of"> | null;
  readonly limiter: Limiter;
  readonly prices: Prices;
  readonly bodies: BodyBudget;
  readonly upstream: Upstream;
  readonly outages: Outages;
  readonly inFlight: InFlight;
  readonly journal: Journal;
  readonly keyHealth: KeyHealth;
  readonly gatewayHealth: GatewayHealth;
  readonly otherModels: Pick<OtherModels, "note">;
  readonly isStopping: () => boolean;
  /** The gateway is the embedded sandbox, and responses say so. */
  readonly isSandbox: () => boolean;
  /** Whether the log is followed live. */
  readonly isFollowed: () => boolean;
  readonly notify: (record: UsageRecord) => void;
  /** Counts the requests that have ended; null: metrics are off. */
  readonly metrics: () => RequestCounter | null;
  /** Its console showed that it bills a stream that the client ended by what had been sent. */
  readonly billsAsStreamed: (gateway: string) => boolean;
  /** It takes the ids of its requests from here: see CALL_ID_HEADER. */
  readonly takesCallIds: (gateway: Gateway) => boolean;
  /** After the gateway's 401: the key may have been rotated in its source. */
  readonly rereadKey: (tool: string) => void;
  /** After an error that does not say what is wrong with the key or its group. Asks the console, the gateway or the usage log. */
  readonly checkKey: (tool: string, gateway: Gateway, key: Secret, cause: Cause) => void;
}
