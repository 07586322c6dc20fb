import type { Reader } from "../../config/section.ts";
import { amount, dollars, moment } from "../../config/values.ts";
import { askDaemon } from "../../control/client.ts";
import type { AllowanceAnswer, AllowanceRequest } from "../../control/routes.ts";
import type { LimitStatus } from "../../control/tool-status.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import type { Kind } from "../../limits/counters.ts";
import { endInWords } from "../../limits/format.ts";
import { systemCalendar } from "../../limits/windows.ts";
import { fail, print } from "../ui/messages.ts";
import { isInteractive, stdoutScreen } from "../ui/terminal.ts";
import { amountOf, limitLines } from "./limit-lines.ts";

interface LiftOptions {
  readonly requests?: string;
  readonly tokens?: string;
  readonly spend?: string;
  readonly until?: string;
}

export async function lift(name: string, options: LiftOptions): Promise<void> {
  const now = Date.now();
  const asked = readLift(options, now);
  if ("fault" in asked) return fail(asked.fault, EXIT.usage);
  // A limit that holds a program must not be moved by that program: a person at a terminal has to.
  if (!isInteractive())
    return fail(
      `lift wants a person at a terminal. open one and type: keybearer tools lift ${name} …`,
      EXIT.usage,
    );
  const answer = await askDaemon<AllowanceAnswer>(
    findPaths().socket,
    "POST",
    `/lift/${encodeURIComponent(name)}`,
    asked,
  );
  if (!answer.ok) return fail(answer.reason, EXIT.failed);
  const { tool, levels, problem } = answer.value;
  if (problem !== null) return fail(problem, EXIT.failed);
  const { kind, amount: extra, until } = asked;
  const lifted = levels.filter(({ limit }) => limit === kind);
  const span = until === null ? "" : ` ${eachWindow(lifted)} until ${endInWords(until, systemCalendar)}`;
  print(`${tool} has ${amountOf(kind, extra)} more${span}`);
  print(...limitLines(lifted, now, stdoutScreen()));
}

/** in each day and each month: said, because up to a day far off it is given many times over. */
function eachWindow(lifted: readonly LimitStatus[]): string {
  return `in ${lifted.map(({ per }) => `each ${per}`).join(" and ")}`;
}

type Lifting = AllowanceRequest | { readonly fault: string };

/** What the options ask for, or what is wrong with them. */
export function readLift(options: LiftOptions, now: number): Lifting {
  const given = (["requests", "tokens", "spend"] as const).flatMap((kind) => {
    const text = options[kind];
    return text === undefined ? [] : [{ kind, text }];
  });
  const [only] = given;
  if (only === undefined || given.length > 1)
    return { fault: "say what to lift with one of --requests 50, --tokens 200k or --spend 5" };
  const most = readAmount(only.kind, only.text);
  if ("fault" in most) return most;
  const until = options.until === undefined ? { value: null } : readUntil(options.until, now);
  if ("fault" in until) return until;
  return { kind: only.kind, amount: most.value, until: until.value };
}

type Value<T> = { readonly value: T } | { readonly fault: string };

function readAmount(kind: Kind, text: string): Value<number> {
  if (kind !== "spend") return read(amount, text, `--${kind}`);
  // Unquoted, a shell takes $5 for a variable: what comes here is empty, or $50 has become 0.
  const money = read(dollars, text.startsWith("$") ? text : `$${text}`, "--spend");
  if ("value" in money && money.value > 0) return money;
  return {
    fault: `--spend: ${JSON.stringify(text)} is not an amount above zero: write dollars without the sign, such as 5 or 0.50`,
  };
}

function readUntil(text: string, now: number): Value<number> {
  const clock = /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(text);
  if (clock !== null) return { value: nextTime(Number(clock[1]), Number(clock[2]), now) };
  const time = read(moment, text, "--until");
  if ("fault" in time) return { fault: `--until: write it as 18:00, 2026-11-16 or 2026-11-16T18:00Z` };
  return time.value > now ? time : { fault: `--until: ${text} is over already` };
}

/** Today where it is still to come, else tomorrow. */
function nextTime(hour: number, minute: number, now: number): number {
  const { year, month, day } = systemCalendar.at(now);
  const at = (date: number) => new Date(year, month - 1, date, hour, minute).getTime();
  return at(day) > now ? at(day) : at(day + 1);
}

function read<T>(reader: Reader<T>, text: string, option: string): Value<T> {
  const reading = reader(text);
  if ("value" in reading) return reading;
  return { fault: `${option}: ${reading.fault}${reading.hint === undefined ? "" : `: ${reading.hint}`}` };
}
