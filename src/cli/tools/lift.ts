import type { Reader } from "../../config/section.ts";
import { amount, moment, parseDollars, withDollarSign } from "../../config/values.ts";
import { askDaemon } from "../../control/client.ts";
import type { AllowanceAnswer, AllowanceRequest, ReleaseAnswer } from "../../control/routes.ts";
import type { Status } from "../../control/status.ts";
import type { LimitStatus } from "../../control/tool-status.ts";
import { advice } from "../../core/advice.ts";
import type { Problem } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { Kind } from "../../limits/counters.ts";
import { amountInWords, amountToType, endInWords } from "../../limits/format.ts";
import { systemCalendar } from "../../limits/windows.ts";
import { fail, failNull, print, printText } from "../ui/messages.ts";
import { agrees } from "../ui/prompts.ts";
import { commandPaths } from "../ui/stdio.ts";
import { isInteractive, stdoutScreen } from "../ui/terminal.ts";
import { limitLines } from "./limit-lines.ts";

export interface LiftOptions {
  /** true: as much as the last refused request needs. */
  readonly requests?: string | true;
  readonly tokens?: string | true;
  readonly spend?: string | true;
  readonly until?: string;
  readonly takeBack?: boolean;
  readonly machine?: string;
}

/** Gives a tool an extra allowance, takes back what it was given, or releases what a lost machine holds. */
export async function lift(name: string, options: LiftOptions): Promise<void> {
  const { machine } = options;
  const hasAmount = (options.requests ?? options.tokens ?? options.spend ?? options.until) !== undefined;
  const request = options.takeBack || machine !== undefined ? null : readLift(options, Date.now());
  if (request !== null && "problem" in request) return fail(request, EXIT.usage);
  if (options.takeBack && hasAmount)
    return fail("--take-back takes back all extra allowances of the tool: leave the amount out", EXIT.usage);
  if (machine !== undefined && (hasAmount || options.takeBack))
    return fail("--machine releases everything that the machine holds: leave the rest out", EXIT.usage);
  // A limit that stops a program must not be raised by that program, so a person at a terminal has to.
  if (!isInteractive()) {
    const typed = commandAsTyped(name, options, request);
    return fail(`lift needs a person at a terminal. open one and type: ${typed}`, EXIT.usage);
  }
  const paths = commandPaths();
  const limits = await currentLimits(paths, name);
  if (limits === null) return;
  if (machine !== undefined) await release(paths, name, machine);
  else if (request === null) await takeBack(paths, name, limits);
  else await give(paths, name, limits, request);
}

function commandAsTyped(name: string, options: LiftOptions, request: Lift | null): string {
  if (options.machine !== undefined) return advice.releaseMachine(name, options.machine);
  if (request === null) return advice.takeBackLift(name);
  const { kind } = request;
  const amount = options[kind];
  const until = options.until === undefined ? "" : ` --until ${options.until}`;
  return `${advice.lift(name, kind, typeof amount === "string" ? amount : null)}${until}`;
}

/** null: a message has said why they are unknown. */
async function currentLimits(paths: Paths, name: string): Promise<readonly LimitStatus[] | null> {
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  if (!asked.ok) return failNull(asked, EXIT.failed);
  const { tools } = asked.value;
  const tool = tools.find((each) => each.name === name);
  if (tool !== undefined) return tool.limits;
  const names = tools.map((each) => each.name).join(", ");
  return failNull(`there is no tool ${name}; the tools are ${names}`, EXIT.failed);
}

async function give(
  paths: Paths,
  name: string,
  limits: readonly LimitStatus[],
  { kind, amount, until }: Lift,
): Promise<void> {
  const current = limits.filter(({ limit }) => limit === kind);
  if (current.length === 0) return fail(`tool ${name} has no limit on ${kind}`, EXIT.failed);
  const extra = amount ?? enoughFor(kind, current);
  const now = Date.now();
  print(...limitLines(current, now, stdoutScreen()).flat());
  const granted = Math.max(...current.map((limit) => limit.extra));
  if (granted > 0) printText(`${name} was already given ${amountInWords(kind, granted)} more`);
  const windows = until === null ? "" : ` ${eachWindow(current)} until ${endInWords(until, systemCalendar)}`;
  const what = `${amountInWords(kind, extra)} more${windows}`;
  if (!(await agrees(`give ${name} ${what}?`, "no", "given"))) return;
  const answer = await sendAllowance(paths, name, { kind, amount: extra, until });
  if (answer === null) return;
  print(`${name} has ${what}`);
  print(
    ...limitLines(
      answer.filter(({ limit }) => limit === kind),
      now,
      stdoutScreen(),
    ).flat(),
  );
  print(`to take it back: ${advice.takeBackLift(name)}`);
}

async function takeBack(paths: Paths, name: string, limits: readonly LimitStatus[]): Promise<void> {
  const given = limits.filter(({ extra }) => extra > 0);
  if (given.length === 0) return print(`${name} has no extra allowance`);
  const now = Date.now();
  print(...limitLines(given, now, stdoutScreen()).flat());
  if (!(await agrees(`take back the extra allowances of ${name}?`, "yes", "taken back"))) return;
  let levels: readonly LimitStatus[] = [];
  for (const kind of ["requests", "tokens", "spend"] as const) {
    if (!given.some(({ limit }) => limit === kind)) continue;
    const answer = await sendAllowance(paths, name, { kind, amount: 0, until: null });
    if (answer === null) return;
    levels = answer;
  }
  const changed = levels.filter(({ limit, per }) =>
    given.some((old) => old.limit === limit && old.per === per),
  );
  print(`${name} has its limits of config.yaml again`, ...limitLines(changed, now, stdoutScreen()).flat());
}

async function release(paths: Paths, name: string, machine: string): Promise<void> {
  const question = `is machine ${machine} lost, so that what it holds of the limits of ${name} can be used?`;
  if (!(await agrees(question, "no", "released"))) return;
  const path = `/release/${encodeURIComponent(name)}`;
  const answer = await askDaemon<ReleaseAnswer>(paths, "POST", path, { machine });
  if (!answer.ok) return fail(answer, EXIT.failed);
  const { levels, problem } = answer.value;
  if (problem !== null) return fail(problem, EXIT.failed);
  print(`what machine ${machine} held of the limits of ${name} was released`);
  print(...limitLines(levels, Date.now(), stdoutScreen()).flat());
}

/** The limits as they are now; null: a message has said why nothing changed. */
async function sendAllowance(
  paths: Paths,
  name: string,
  request: AllowanceRequest,
): Promise<readonly LimitStatus[] | null> {
  const path = `/lift/${encodeURIComponent(name)}`;
  const answer = await askDaemon<AllowanceAnswer>(paths, "POST", path, request);
  if (!answer.ok) return failNull(answer, EXIT.failed);
  const { levels, problem } = answer.value;
  return problem === null ? levels : failNull(problem, EXIT.failed);
}

/** `in each day and each month`: until a distant day it is given many times. */
function eachWindow(limits: readonly LimitStatus[]): string {
  return `in ${limits.map(({ per }) => `each ${per}`).join(" and ")}`;
}

/** An allowance that was asked for; amount null: as much as the last refused request needs. */
type Lift = Omit<AllowanceRequest, "amount"> & { readonly amount: number | null };
type Lifting = Lift | Problem;

/** Rounded as the command in a refusal is, so that both give the same amount. */
function enoughFor(kind: Kind, limits: readonly LimitStatus[]): number {
  // A daemon that was started before an update does not report it.
  const lift = Math.max(...limits.map((limit) => limit.lift ?? limit.most));
  const typed = readAmount(kind, amountToType(kind, lift));
  return "value" in typed ? typed.value : lift;
}

/** What the options ask for, or what is wrong with them. */
export function readLift(options: LiftOptions, now: number): Lifting {
  const given = (["requests", "tokens", "spend"] as const).flatMap((kind) => {
    const text = options[kind];
    return text === undefined ? [] : [{ kind, text }];
  });
  const [only] = given;
  if (only === undefined || given.length > 1)
    return { problem: "say what to lift", next: "one of --requests 50, --tokens 200k or --spend 5" };
  const extra = only.text === true ? { value: null } : readAmount(only.kind, only.text);
  if ("problem" in extra) return extra;
  const until = options.until === undefined ? { value: null } : readUntil(options.until, now);
  if ("problem" in until) return until;
  return { kind: only.kind, amount: extra.value, until: until.value };
}

type Value<T> = { readonly value: T } | Problem;

function readAmount(kind: Kind, text: string): Value<number> {
  if (kind !== "spend") return read(amount, text, `--${kind}`);
  // Without quotes a shell reads $5 as a variable: it arrives empty, and $50 as 0.
  const money = read(parseDollars, withDollarSign(text), "--spend");
  if ("value" in money && money.value > 0) return money;
  return {
    problem: `--spend: ${JSON.stringify(text)} is not an amount above zero`,
    next: "write dollars without the sign, such as 5 or 0.50",
  };
}

function readUntil(text: string, now: number): Value<number> {
  const clock = /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(text);
  if (clock !== null) return { value: nextTime(Number(clock[1]), Number(clock[2]), now) };
  const time = read(moment, text, "--until");
  if ("problem" in time)
    return {
      problem: `--until: ${JSON.stringify(text)} is not a time`,
      next: "write it as 18:00, 2026-11-16 or 2026-11-16T18:00Z",
    };
  return time.value > now ? time : { problem: `--until: ${text} has passed already`, next: null };
}

/** Today if it is still ahead, otherwise tomorrow. */
function nextTime(hour: number, minute: number, now: number): number {
  const { year, month, day } = systemCalendar.at(now);
  const at = (date: number) => new Date(year, month - 1, date, hour, minute).getTime();
  return at(day) > now ? at(day) : at(day + 1);
}

function read<T>(reader: Reader<T>, text: string, option: string): Value<T> {
  const reading = reader(text);
  if ("value" in reading) return reading;
  return { problem: `${option}: ${reading.problem}`, next: reading.next };
}
