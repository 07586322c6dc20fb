import { askDaemon } from "../../control/client.ts";
import type {
  SessionLiftAnswer,
  SessionLiftRequest,
  SessionStopAnswer,
  SessionStopRequest,
} from "../../control/routes.ts";
import type { SessionLimitStatus, SessionStatus } from "../../control/session-status.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { amountInWords, statusFigures } from "../../limits/format.ts";
import { count } from "../../usage/reports/format.ts";
import { isShared, type SessionName } from "../../usage/reports/sessions.ts";
import { type LiftOptions, readLift } from "../tools/lift.ts";
import { fail, failNull, print, printText } from "../ui/messages.ts";
import { agrees } from "../ui/prompts.ts";
import { commandPaths } from "../ui/stdio.ts";
import { isInteractive } from "../ui/terminal.ts";
import { askSessions, findCounted } from "./find.ts";

interface SessionOptions {
  readonly tool?: string;
}

/** `keybearer sessions stop`: cuts its requests in flight, and refuses further ones. */
export async function stop(text: string, options: SessionOptions): Promise<void> {
  const paths = commandPaths();
  const session = await findChangeable(paths, text, options.tool);
  if (session === null) return;
  const answer = await changeStop(paths, session, true);
  if (answer === null) return;
  const cut = answer.cut === 0 ? "" : `; ${count(answer.cut, "request")} in flight cut`;
  print(`session ${session.session} of ${session.tool} is stopped${cut}`);
  print(`to allow it again: ${advice.allowSession(session.session, session.tool)}`);
}

/** `keybearer sessions allow` */
export async function allow(text: string, options: SessionOptions): Promise<void> {
  // A stop must not be taken back by the program that it stops, so a person at a terminal has to.
  if (!isInteractive()) return needsTerminal("allow", advice.allowSession(text));
  const paths = commandPaths();
  const session = await findChangeable(paths, text, options.tool);
  if (session === null) return;
  if (!(await findStatus(paths, session))?.stopped)
    return print(`session ${session.session} of ${session.tool} is not stopped`);
  if (!(await agrees(`allow session ${session.session} of ${session.tool} again?`, "no", "allowed"))) return;
  const answer = await changeStop(paths, session, false);
  if (answer !== null) print(`session ${session.session} of ${session.tool} is allowed again`);
}

/** `keybearer sessions lift` */
export async function lift(text: string, options: LiftOptions & SessionOptions): Promise<void> {
  const request = options.takeBack ? null : readLift(options, Date.now());
  if (request !== null && "problem" in request) return fail(request.problem, EXIT.usage);
  if (!isInteractive()) {
    const typed =
      request === null ? advice.takeBackSessionLift(text) : advice.liftSession(text, request.kind, null);
    return needsTerminal("lift", typed);
  }
  const paths = commandPaths();
  const session = await findChangeable(paths, text, options.tool);
  if (session === null) return;
  const limits = (await findStatus(paths, session))?.limits ?? [];
  if (request === null) await takeBack(paths, session, limits);
  else await give(paths, session, limits, request);
}

async function give(
  paths: Paths,
  { tool, session: id }: SessionName,
  limits: readonly SessionLimitStatus[],
  { kind, amount }: Pick<SessionLiftRequest, "kind"> & { readonly amount: number | null },
): Promise<void> {
  const limit = limits.find((one) => one.limit === kind);
  // As much as a session has from the start, if no amount is named.
  const extra = amount ?? (limit === undefined ? null : limit.most - limit.extra);
  if (extra === null) return fail(`tool ${tool} has no limit on ${kind} for a session`, EXIT.failed);
  if (limit !== undefined) print(limitLine(limit));
  if (!(await agrees(`give session ${id} of ${tool} ${amountInWords(kind, extra)} more?`, "no", "given")))
    return;
  const given = await sendLift(paths, { tool, session: id }, { session: id, kind, amount: extra });
  if (given === null) return;
  print(`session ${id} of ${tool} has ${amountInWords(kind, extra)} more`);
  print(...given.filter((one) => one.limit === kind).map(limitLine));
  print(`to take it back: ${advice.takeBackSessionLift(id, tool)}`);
}

async function takeBack(
  paths: Paths,
  session: SessionName,
  limits: readonly SessionLimitStatus[],
): Promise<void> {
  const given = limits.filter(({ extra }) => extra > 0);
  const { tool, session: id } = session;
  if (given.length === 0) return print(`session ${id} of ${tool} has no extra allowance`);
  print(...given.map(limitLine));
  if (!(await agrees(`take back what session ${id} of ${tool} was given?`, "yes", "taken back"))) return;
  for (const { limit } of given) {
    if ((await sendLift(paths, session, { session: id, kind: limit, amount: 0 })) === null) return;
  }
  print(`session ${id} of ${tool} has its limits of config.yaml again`);
}

function limitLine({ limit, used, held, most, extra }: SessionLimitStatus): string {
  const figures = statusFigures({ limit, used, held, most, extra });
  const reserved = figures.held === null ? "" : `, ${figures.held} reserved for requests in flight`;
  return `${limit}: ${figures.used} of ${figures.max} used${reserved}`;
}

function needsTerminal(what: string, typed: string): void {
  fail(`${what} needs a person at a terminal. open one and type: ${typed}`, EXIT.usage);
}

/** null: a message has said why. */
async function findChangeable(paths: Paths, text: string, tool?: string): Promise<SessionName | null> {
  const found = await findCounted(paths, text, tool ?? null);
  if (!found.ok) return failNull(found, EXIT.failed);
  const { session } = found.name;
  if (isShared(session)) printText(`requests that name no session count together, as ${session}`);
  return found.name;
}

async function findStatus(paths: Paths, { tool, session }: SessionName): Promise<SessionStatus | undefined> {
  return (await askSessions(paths)).find((one) => one.tool === tool && one.session === session);
}

async function changeStop(
  paths: Paths,
  { tool, session: id }: SessionName,
  stopped: boolean,
): Promise<SessionStopAnswer | null> {
  const request: SessionStopRequest = { session: id, stopped };
  const path = `/stopsession/${encodeURIComponent(tool)}`;
  const asked = await askDaemon<SessionStopAnswer>(paths, "POST", path, request);
  if (!asked.ok) return failNull(asked.problem, EXIT.failed);
  const { problem } = asked.value;
  return problem === null ? asked.value : failNull(problem, EXIT.failed);
}

/** The limits as they are now; null: a message has said why nothing changed. */
async function sendLift(
  paths: Paths,
  { tool }: SessionName,
  request: SessionLiftRequest,
): Promise<readonly SessionLimitStatus[] | null> {
  const path = `/liftsession/${encodeURIComponent(tool)}`;
  const asked = await askDaemon<SessionLiftAnswer>(paths, "POST", path, request);
  if (!asked.ok) return failNull(asked.problem, EXIT.failed);
  const { problem, limits } = asked.value;
  return problem === null ? limits : failNull(problem, EXIT.failed);
}
