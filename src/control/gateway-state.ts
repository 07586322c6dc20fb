import type { GatewayStatus } from "./status.ts";

/** What `status` and the dashboard show of a gateway. While its state is unknown, what the usage log has of it. */
export type ShownGatewayState =
  | GatewayStatus["state"]
  | "no-request"
  | "no-request-today"
  | "requests-today"
  /** There were requests today, before the start. */
  | "none-since-start";

/** @param startedAt when the daemon started, as far as its uptime in seconds says */
export function shownGatewayState(
  { state, before }: Pick<GatewayStatus, "state" | "before">,
  startedAt: number,
): ShownGatewayState {
  if (state !== "unknown" || before === null) return state;
  const { requests_today: today, last_request_at: last } = before;
  if (last === null) return "no-request";
  if (today === 0) return "no-request-today";
  return last < startedAt ? "none-since-start" : "requests-today";
}
