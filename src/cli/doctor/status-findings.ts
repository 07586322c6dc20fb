import type { GatewayStatus, Status, UsageStatus } from "../../control/status.ts";
import type { LimitStatus, ToolStatus } from "../../control/tool-status.ts";
import { aboutTool, type Finding } from "../../doctor/findings.ts";
import type { Alarm, ConsoleStatus } from "../../mirror/report/shape.ts";
import { alarmSentence, alarmWord, remedyInWords } from "../mirror/alarm-words.ts";
import { kindInWords, lastSync, trouble } from "../mirror/headline.ts";
import { describeFailure } from "../status.ts";
import { nameOf, whenInWords } from "../tools/limit-lines.ts";

/** What only the running daemon knows: failing gateways, limits, the usage log, the mirror and its alarms. */
export function statusFindings({ gateways, tools, usage, consoles = [] }: Status, now: number): Finding[] {
  return [
    ...gateways.flatMap((gateway) => gatewayFindings(gateway, now)),
    ...tools.flatMap((tool) => limitFindings(tool, now)),
    ...usageFindings(usage),
    ...consoles.flatMap((console) => consoleFindings(console, now)),
  ];
}

/** Only a warning: whether the gateway answers now is what doctor's own probe finds out. */
function gatewayFindings(gateway: GatewayStatus, now: number): Finding[] {
  const failing = describeFailure(gateway, now);
  if (failing === null) return [];
  const what = `by the last requests of its tools: ${failing}`;
  return [{ id: "gateway", level: "warning", about: `gateway ${gateway.name}`, what, next: null }];
}

function limitFindings({ name, limits }: ToolStatus, now: number): Finding[] {
  return limits.filter(isUsedUp).map((limit) => {
    const { resets_at: resets } = limit;
    const again = resets === null ? "" : `, resets ${whenInWords(resets, now)}`;
    const quota = limit.limit === "quota";
    return {
      id: "limit",
      // A limit that fills up does what it is for; a quota stays full until somebody acts.
      level: quota ? "problem" : "warning",
      about: aboutTool(name),
      what: `${nameOf(limit)} is used up${again}`,
      next: quota ? `raise tools.${name}.quota` : `keybearer tools lift ${name} --${limit.limit} …`,
    };
  });
}

/** Calls at once are back in a moment. */
function isUsedUp({ limit, used, most }: LimitStatus): boolean {
  return limit !== "concurrent" && used !== null && used >= most;
}

function usageFindings(usage: UsageStatus): Finding[] {
  const about = "the usage log";
  const warnings = usage.warnings.map(
    (what): Finding => ({ id: "usage", level: "warning", about, what, next: null }),
  );
  if (usage.state === "ok") {
    const what = `${usage.folder}, ${(usage.bytes / 1e6).toFixed(1)} MB`;
    return [{ id: "usage", level: "ok", about, what, next: null }, ...warnings];
  }
  const what = `requests are refused: ${usage.why ?? "it cannot be written"}`;
  return [{ id: "usage", level: "problem", about, what, next: usage.next }, ...warnings];
}

function consoleFindings(console: ConsoleStatus, now: number): Finding[] {
  const about = `mirror ${console.gateway}`;
  const alarms = console.alarms.map((alarm) => alarmFinding(alarm, about, now));
  const found = trouble(console, now);
  const quiet = found === null || console.state === "syncing" || console.state === "waiting";
  const what = found?.what ?? `${kindInWords(console)}, ${lastSync(console, now)}`;
  const level = quiet ? "ok" : isForTheOwner(console) ? "problem" : "warning";
  return [...alarms, { id: "mirror", level, about, what, next: found?.next ?? null }];
}

/** A suspicion is a warning: the rows may belong to requests of ours. */
function alarmFinding(alarm: Alarm, about: string, now: number): Finding {
  const { certain, reason, gateway } = alarm;
  const why = certain || reason === null ? "" : ` (${reason})`;
  return {
    id: "alarm",
    level: certain ? "problem" : "warning",
    about,
    what: `${alarmWord(alarm)} ${alarmSentence(alarm, now)}${why}`,
    next: `${remedyInWords(alarm, now)}; then keybearer mirror ack ${gateway}`,
  };
}

/** These do not pass by themselves. */
function isForTheOwner({ state }: ConsoleStatus): boolean {
  return ["login-needed", "login-refused", "needs-trust", "not-a-console"].includes(state);
}
