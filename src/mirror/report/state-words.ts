import { localTime } from "../../usage/reports/calendar.ts";
import type { ConsoleAdapter, ConsoleFault } from "../consoles/console.ts";
import type { CoverageGap } from "../store/coverage-gaps.ts";
import type { Alarm, ConsoleStatus } from "./shape.ts";

interface Condition {
  readonly gateway: string;
  readonly running: boolean;
  readonly fault: ConsoleFault | null;
  /** It was read completely at least once since the start. */
  readonly synced: boolean;
  /** Why its rows cannot show a leak. */
  readonly blind: string | null;
}

type State = Pick<ConsoleStatus, "state" | "why" | "next">;

/** The usage log itself cannot be read, whatever the console does. */
export const UNREADABLE: State = {
  state: "failing",
  why: "the usage log cannot be read, so nothing can be compared",
  next: "keybearer status",
};

/** A gateway whose console was removed from config.yaml while it has open alarms. */
export function forsakenStatus(gateway: string, alarms: readonly Alarm[]): ConsoleStatus {
  return {
    gateway,
    kind: null,
    detected: false,
    url: "",
    state: "cannot-see",
    why: "config.yaml has no console for this gateway any more",
    next: `put gateways.${gateway}.console back, or keybearer mirror ack ${gateway}`,
    last_sync: null,
    next_sync: null,
    progress: null,
    skew: null,
    alarms,
  };
}

export function stateInWords({ gateway, running, fault, synced, blind }: Condition): State {
  if (running) return { state: "syncing", why: null, next: null };
  if (fault !== null)
    return { state: fault.kind, why: `the console ${fault.message}`, next: nextStep(fault, gateway) };
  if (!synced) return { state: "waiting", why: null, next: `keybearer mirror sync ${gateway}` };
  if (blind !== null)
    return { state: "cannot-see", why: `the console ${blind}`, next: `check gateways.${gateway}.console` };
  return { state: "ok", why: null, next: null };
}

function nextStep({ kind, account }: ConsoleFault, gateway: string): string | null {
  switch (kind) {
    case "login-needed":
    case "login-refused":
      return `keybearer mirror login ${gateway}${account === null ? "" : ` --account ${account}`}`;
    case "needs-trust":
      return `keybearer trust ${gateway}`;
    case "not-a-console":
      return `check gateways.${gateway}.console.url`;
    case "other-shape":
      return `check gateways.${gateway}.console.kind`;
    case "not-yet":
      return `take gateways.${gateway}.console out of config.yaml`;
    case "rate-limited":
    case "unreachable":
    case "slow":
    case "failing":
      // keybearer retries by itself.
      return null;
  }
}

/** What the alarm cannot see, so that silence is not mistaken for safety. */
export function blindInWords(
  { state, last_sync }: ConsoleStatus,
  adapter: ConsoleAdapter | null,
  givenUp: readonly string[],
  lost: readonly CoverageGap[],
): string[] {
  const blind = [
    adapter === null || adapter.kind === "sub2api" || adapter.kind === "one-api"
      ? "calls that failed: this console lists only what was billed"
      : "calls that failed, unless the console's operator has them logged",
    "calls that the console's operator does not log",
    ...(givenUp.length === 0
      ? []
      : [`calls with keys that no tool here has any more: ${givenUp.join(", ")}`]),
    ...lost.slice(-MAX_LOST).map(lostInWords),
  ];
  if (state === "ok" || state === "syncing") return blind;
  const since = last_sync === null ? "anything: its rows were never read" : "anything since the last sync";
  return [since, ...blind];
}

/** Only the latest are listed. */
const MAX_LOST = 3;

function lostInWords({ from, to }: CoverageGap): string {
  const span = from === 0 ? `before ${localTime(to)}` : `between ${localTime(from)} and ${localTime(to)}`;
  return `requests ${span}: the usage log lost its end, so they could not be compared`;
}
