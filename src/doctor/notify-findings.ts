import { advice } from "../core/advice.ts";
import type { ChannelStatus, NotifyStatus } from "../notify/status.ts";
import type { Finding, FindingLevel } from "./findings.ts";

/** Other states may end by themselves. These do not. */
const OWNER_STATES: readonly ChannelStatus["state"][] = ["held", "unavailable", "gone"];

/** Whether alerts reach the owner. null: from a daemon before an update. */
export function notifyFindings(notify: NotifyStatus | null): Finding[] {
  if (notify === null) return [];
  const findings = notify.channels.map(channelFinding);
  if (notify.problem !== null) {
    const what = `alerts that wait are kept in memory only: ${notify.problem}`;
    findings.push(finding("warning", what, advice.status()));
  }
  return findings;
}

function finding(level: FindingLevel, what: string, next: string | null): Finding {
  return { id: "notify", level, about: "alerts", what, next };
}

function channelFinding(channel: ChannelStatus): Finding {
  const { name, kind, state, why, next, waiting, lost, delivered_at } = channel;
  const shown = name === kind ? name : `${name} (${kind})`;
  const counts = [waiting > 0 ? `${waiting} waiting` : "", lost > 0 ? `${lost} given up` : ""]
    .filter((part) => part !== "")
    .map((part) => `, ${part}`)
    .join("");
  if (state === "ok") {
    const works = delivered_at === null ? "is set up, and nothing was sent to it since the start" : "works";
    return finding(lost > 0 ? "warning" : "ok", `${shown} ${works}${counts}`, null);
  }
  if (state === "absent") return finding("ok", `${shown}: ${why}`, null);
  const level = OWNER_STATES.includes(state) ? "problem" : "warning";
  return finding(level, `${shown} is ${state}${counts}: ${why}`, next ?? advice.notifyTest(name));
}
