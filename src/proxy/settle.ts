import type { Clock } from "../clock.ts";
import type { Logger } from "../logger.ts";
import type { Outcome } from "./exchange.ts";
import type { Request } from "./request.ts";
import type { Standings } from "./standing.ts";

export interface SettleMeans {
  readonly clock: Clock;
  readonly log: Logger;
  readonly standings: Standings;
  /** The gateway answered 401: the key may have been rotated where it is kept. */
  readonly rereadKey: (tool: string) => void;
}

/** The one way out of every request: finished, refused, left or failed. */
export function settle(request: Request, outcome: Outcome, means: SettleMeans): void {
  const { tool, key } = request;
  if (tool !== null && key !== null && outcome.end !== "refused") {
    means.standings.note(tool.name, key, outcome);
    if (outcome.status === 401) means.rereadKey(tool.name);
  }
  const line = {
    id: request.id,
    tool: tool?.name ?? null,
    gateway: request.gateway?.name ?? null,
    method: request.method,
    endpoint: request.endpoint,
    status: outcome.status,
    end: outcome.end,
    refusal: outcome.refusal?.code ?? null,
    cause: outcome.cause?.name ?? null,
    ms: Math.round(means.clock.elapsed() - request.startedElapsed),
    bytes_in: outcome.bytesIn,
    bytes_out: outcome.bytesOut,
  };
  const failed = outcome.end === "gateway-failed" || outcome.refusal !== null || outcome.cause !== null;
  means.log[failed ? "warn" : "info"](
    line,
    failed ? (outcome.refusal?.message ?? "request failed") : "request",
  );
}
