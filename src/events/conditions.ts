import type { EventKind } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import { HOUR_MS, MINUTE_MS } from "../core/units.ts";
import { durationInWords } from "../limits/format.ts";
import { alarmClaim } from "../mirror/report/messages.ts";
import type { Alarm } from "../mirror/report/shape.ts";
import type { OtherModel } from "../proxy/other-models.ts";
import type { Occurrence, Said, SentenceCode } from "./event.ts";
import { plainSubject } from "./sentence.ts";

/* What lasts: found in what the daemon knows at a moment. Pure, so that a table of moments tests it. */

/** What the daemon knows at a moment. */
export interface Observed {
  readonly now: number;
  readonly tools: readonly ObservedTool[];
  readonly gateways: readonly ObservedGateway[];
  /** Why the usage log cannot be written; null: it can. */
  readonly logProblem: string | null;
  /** What is wrong with config.yaml as it was saved last; null: it is in force. */
  readonly rejected: RejectedConfig | null;
  /** null: they were not asked yet. */
  readonly consoles: readonly ObservedConsole[] | null;
}

export interface ObservedTool {
  readonly name: string;
  /** accepted: the gateway accepted it since the start. unknown: it was not tried since, or it cannot be read. */
  readonly key: "held" | "refused" | "accepted" | "unknown";
  /** Why it is refused, and what to type; null: it is not. */
  readonly refused: { readonly problem: string; readonly cause: string; readonly next: string | null } | null;
}

export interface ObservedGateway {
  readonly name: string;
  readonly state: "unknown" | "reachable" | "failing";
  /** From the first failure to the last one, 0 if there was only one. Not until now: one cut stream and a pause is no outage. */
  readonly failedForMs: number;
  readonly problem: string | null;
}

export interface RejectedConfig {
  /** Errors in it. */
  readonly count: number;
  /** Where the first is; null: of the whole file. */
  readonly line: number | null;
  readonly check: string;
}

export interface ObservedConsole {
  readonly gateway: string;
  /** unknown: it is being read, or was not read yet. */
  readonly state: "read" | "blind" | "unknown";
  /** When that was first seen; null: it is not blind. */
  readonly blindSince: number | null;
  readonly why: string | null;
  readonly next: string | null;
  readonly alarms: readonly Alarm[];
}

/** A kind of event and what it is about. */
export type Ref = Pick<Occurrence, "kind" | "subject">;

interface Conditions {
  readonly holding: readonly Occurrence[];
  /** What cannot be said at the moment. What was reported of it stays as it is. */
  readonly unclear: readonly Ref[];
}

/** What was known before. */
export interface Before {
  /** What was reported and did not end, also by an earlier process. */
  readonly lasting: readonly Ref[];
  /** What held since this process began, by nameOf(). */
  readonly seen: ReadonlySet<string>;
}

/** Says that something is over. */
interface Ending {
  readonly message: string;
  readonly said: Said;
}

interface Changes {
  readonly begun: readonly Occurrence[];
  readonly ended: readonly (Ref & Ending)[];
  /** All that holds now. */
  readonly holding: readonly Occurrence[];
}

/** A gateway that does not answer for less than this may just be restarting. */
const GATEWAY_DOWN_MS = MINUTE_MS;
const BLIND_MS = HOUR_MS;

/** What has begun and what is over. */
export function findOccurrences(before: Before, now: Observed): Changes {
  const { holding, unclear } = findConditions(now);
  const names = new Set(holding.map(nameOf));
  const known = new Set(before.lasting.map(nameOf));
  const isUnclear = new Set(unclear.map(nameOf));
  const ended = before.lasting.filter((ref) => {
    const name = nameOf(ref);
    if (names.has(name) || !canTell(ref.kind, now.consoles)) return false;
    // What was seen here and is not seen any more is over. What an earlier process reported needs a sign that it is.
    return before.seen.has(name) || !isUnclear.has(name);
  });
  return {
    begun: holding.filter((one) => !known.has(nameOf(one))),
    ended: ended.map((ref) => ({ ...ref, ...(isGone(ref, now) ? goneEnding(ref) : endingOf(ref, now)) })),
    holding,
  };
}

/** A console that cannot be read may list an alarm all the same. */
function canTell(kind: EventKind, consoles: Observed["consoles"]): boolean {
  if (kind === "mirror-blind") return consoles !== null;
  if (kind !== "leak" && kind !== "suspicion") return true;
  return consoles?.every(({ state }) => state === "read") ?? false;
}

function isGone({ subject }: Ref, { tools, gateways, consoles }: Observed): boolean {
  const [type, name] = subject.split(" ");
  if (type === "tool") return tools.every((tool) => tool.name !== name);
  if (type === "gateway") return gateways.every((gateway) => gateway.name !== name);
  return type === "console" && (consoles ?? []).every(({ gateway }) => gateway !== name);
}

function goneEnding({ subject }: Ref): Ending {
  return { message: `${subject} is not in config.yaml any more`, said: saidOf("gone", subject) };
}

export function nameOf({ kind, subject }: Ref): string {
  return `${kind} ${plainSubject(subject)}`;
}

function findConditions(now: Observed): Conditions {
  const holding: Occurrence[] = [];
  const unclear: Ref[] = [];
  for (const tool of now.tools) addKey(tool, holding, unclear);
  for (const gateway of now.gateways) addGateway(gateway, holding, unclear);
  for (const console of now.consoles ?? []) addConsole(console, now.now, holding, unclear);
  if (now.logProblem !== null) holding.push(logUnavailable(now.logProblem));
  if (now.rejected !== null) holding.push(configRejected(now.rejected));
  return { holding, unclear };
}

function addKey({ name, key, refused }: ObservedTool, holding: Occurrence[], unclear: Ref[]): void {
  const subject = `tool ${name}`;
  if (key === "held")
    holding.push({
      kind: "needs-trust",
      severity: "warning",
      subject,
      message: `the key of tool ${name} is held: it comes from another place, or would go to another address, and needs your confirmation`,
      next: advice.trust(name),
      said: { code: "needs-trust", values: { name } },
    });
  if (refused !== null)
    holding.push({
      kind: "key-refused",
      severity: "warning",
      subject,
      message: `the gateway refuses the key of tool ${name}: ${refused.problem}`,
      next: refused.next,
      said: { code: "key-refused", values: { name, problem: refused.problem, cause: refused.cause } },
    });
  else if (key !== "accepted") unclear.push({ kind: "key-refused", subject });
}

function addGateway(
  { name, state, failedForMs, problem }: ObservedGateway,
  holding: Occurrence[],
  unclear: Ref[],
): void {
  const subject = `gateway ${name}`;
  if (state === "failing" && failedForMs >= GATEWAY_DOWN_MS)
    holding.push({
      kind: "gateway-down",
      severity: "warning",
      subject,
      message: `gateway ${name} has failed for ${durationInWords(failedForMs)}: ${problem ?? "no answer"}`,
      next: advice.doctor(),
      said: { code: "gateway-down", values: { name, for_ms: failedForMs, problem: problem ?? "no answer" } },
    });
  else if (state !== "reachable") unclear.push({ kind: "gateway-down", subject });
}

function addConsole(console: ObservedConsole, now: number, holding: Occurrence[], unclear: Ref[]): void {
  const { gateway, state, blindSince, why, next } = console;
  const subject = `console ${gateway}`;
  const blind = blindSince === null ? 0 : Math.max(0, now - blindSince);
  const problem = why ?? "its console is not read";
  if (state === "blind" && blind >= BLIND_MS)
    holding.push({
      kind: "mirror-blind",
      severity: "warning",
      subject,
      message: `no leak can be seen at gateway ${gateway} for ${durationInWords(blind)}: ${problem}`,
      next: next ?? advice.mirror(),
      said: { code: "mirror-blind", values: { name: gateway, for_ms: blind, problem } },
    });
  else if (state !== "read") unclear.push({ kind: "mirror-blind", subject });
  for (const alarm of console.alarms) if (!hasAlarm(holding, alarm)) holding.push(alarmOccurrence(alarm));
}

function hasAlarm(holding: readonly Occurrence[], alarm: Alarm): boolean {
  const name = nameOf(alarmOccurrence(alarm));
  return holding.some((one) => nameOf(one) === name);
}

/** A key has one alarm for what is certain, and one for what is suspected. */
export function alarmOccurrence(alarm: Alarm): Occurrence {
  const { key, certain, count, tools } = alarm;
  const kind = certain ? "leak" : "suspicion";
  return {
    kind,
    severity: certain ? "critical" : "warning",
    subject: `key ${key}`,
    message: `${alarmClaim(alarm)}: ${count} request${count === 1 ? "" : "s"}`,
    next: advice.mirror(),
    said: {
      code: tools.length === 0 ? kind : `${kind}-of-tools`,
      values: { key, tools: tools.join(", "), n: count },
    },
  };
}

function logUnavailable(problem: string): Occurrence {
  return {
    kind: "log-unavailable",
    severity: "warning",
    subject: "usage log",
    message: `the usage log cannot be written, so requests are refused: ${problem}`,
    next: advice.status(),
    said: { code: "log-unavailable", values: { problem } },
  };
}

function configRejected({ count, line, check }: RejectedConfig): Occurrence {
  const problems = count === 1 ? "a problem" : `${count} problems`;
  const where = line === null ? "" : count === 1 ? ` in line ${line}` : `, the first in line ${line}`;
  return {
    kind: "config-rejected",
    severity: "warning",
    subject: "config.yaml",
    message: `config.yaml was not accepted: it has ${problems}${where}; the last valid version stays in force`,
    next: check,
    said: { code: "config-rejected", values: { n: count } },
  };
}

function endingOf({ kind, subject }: Ref, { gateways }: Observed): Ending {
  const ending = (code: SentenceCode, message: string) => ({ message, said: saidOf(code, subject) });
  switch (kind) {
    case "leak":
    case "suspicion":
      return ending("alarm-over", `${subject} has no open alarm any more`);
    case "key-refused":
      return ending("key-accepted", `the key of ${subject} is not refused any more`);
    case "needs-trust":
      return ending("trusted", `the key of ${subject} is not held any more`);
    case "gateway-down":
      // After a change of its settings nothing is known of it.
      return gateways.some(
        ({ name, state }) =>
          plainSubject(subject) === plainSubject(`gateway ${name}`) && state === "reachable",
      )
        ? ending("gateway-back", `${subject} answers again`)
        : ending("gateway-unknown", `${subject} is not known to fail any more`);
    case "mirror-blind":
      return ending("mirror-read", `the ${subject} is read again`);
    case "log-unavailable":
      return ending("log-back", "the usage log can be written again");
    case "config-rejected":
      return ending("config-accepted", "config.yaml is accepted again");
    case "limit":
    case "expiry":
    case "spending":
    case "other-model":
      throw new Error(`an event of the kind ${kind} has no end`);
  }
}

/** @param subject such as `tool codex`, of which the sentence has the name */
function saidOf(code: SentenceCode, subject: string): Said {
  return { code, values: { name: subject.slice(subject.indexOf(" ") + 1) } };
}

/** A tool got another model than it had asked for. It is found once for each pair of models (OtherModels), and does not last. */
export function otherModelAnswered({ tool, asked, answered }: OtherModel): Occurrence {
  return {
    kind: "other-model",
    severity: "warning",
    subject: `tool ${tool}`,
    message: `${tool} asked for ${asked}, and ${answered} answered`,
    next: advice.acknowledgeModel(asked, answered),
    said: { code: "other-model", values: { name: tool, asked, answered } },
  };
}
