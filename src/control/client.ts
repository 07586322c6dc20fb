import { once } from "node:events";
import { createWriteStream, existsSync } from "node:fs";
import { request as httpRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { advice, withConfig } from "../core/advice.ts";
import { type Failed, failed, type Problem, quoteForShell } from "../core/display.ts";
import { errorMessage, hasCode } from "../core/errors.ts";
import type { Paths } from "../core/paths.ts";
import type { TailLine } from "./tail.ts";

/** The caller's process id. Node cannot ask a socket who is at its other end, so the log quotes what the caller claims. */
export const PEER_HEADER = "x-keybearer-peer";

export type Asked<T> = { readonly ok: true; readonly value: T } | (Failed & { readonly running: boolean });

/** Where the daemon listens, and the file with which it would be started. */
export type DaemonPaths = Pick<Paths, "mode" | "socket" | "config" | "explicit">;

const TIMEOUT_MS = 15_000;
/** For requests in which the daemon itself waits up to 30 s for each answer of a console. */
export const CONSOLE_TIMEOUT_MS = 75_000;

/** Asks the running daemon. Only the same user can open its socket. Never rejects. */
export async function askDaemon<T>(
  paths: DaemonPaths,
  method: "GET" | "POST",
  path: string,
  body?: unknown,
  timeout: number = TIMEOUT_MS,
): Promise<Asked<T>> {
  const signal = AbortSignal.timeout(timeout);
  let status: number | undefined;
  let answer: string;
  try {
    const response = await send(paths.socket, method, path, body, signal);
    status = response.statusCode;
    answer = await text(response);
  } catch (error) {
    if (isAbsent(error))
      return { ...failed("keybearer is not running", startCommand(paths)), running: false };
    if (paths.mode === "system" && hasCode(error, "EACCES"))
      return { ...failed("you are not an owner of the system service", null), running: true };
    const late = `the daemon did not answer within ${timeout / 1000} s`;
    return { ...failed(signal.aborted ? late : errorMessage(error)), running: true };
  }
  try {
    const value = JSON.parse(answer);
    if (status === 200) return { ok: true, value };
    const next = value.needs_root === true ? advice.asRoot(typedCommand()) : null;
    return { ...failed(String(value.error), next), running: true };
  } catch {
    return { ...failed("the daemon's answer is not JSON"), running: true };
  }
}

/** The command line of this process. */
export function typedCommand(): string {
  return ["keybearer", ...process.argv.slice(2)].map(quoteForShell).join(" ");
}

/** Writes the body of an answer into a new file. A text says why it could not. */
export async function downloadFrom(paths: DaemonPaths, path: string, file: string): Promise<Failed | null> {
  try {
    const response = await send(paths.socket, "GET", path);
    if (response.statusCode !== 200)
      return failed(describeRefusal(response.statusCode, await text(response)).problem);
    await pipeline(response, createWriteStream(file, { flags: "wx", mode: 0o600 }));
    return null;
  } catch (error) {
    return isAbsent(error)
      ? failed("keybearer is not running", startCommand(paths))
      : failed(errorMessage(error));
  }
}

/** Without a config.yaml, only `run` starts: the sandbox. */
export function startCommand(paths: Omit<DaemonPaths, "socket">): string {
  if (paths.mode === "system") return advice.systemService("status");
  return paths.explicit || existsSync(paths.config) ? withConfig(advice.start(), paths) : advice.run();
}

/** Why following ended. `final`: another attempt would not help. */
export interface TailEnd extends Problem {
  readonly final: boolean;
}

/** Follows the running daemon's records until the connection ends. */
export function followTail(socket: string): AsyncGenerator<TailLine, TailEnd> {
  return followLines<TailLine>(socket, "/tail");
}

/**
 * Follows what the daemon writes as JSON lines, until the connection ends. Reads no further than the caller does, so what waits
 * stays with the daemon, which bounds it.
 */
export async function* followLines<Line>(socket: string, path: string): AsyncGenerator<Line, TailEnd> {
  let response: IncomingMessage;
  try {
    response = await send(socket, "GET", path);
  } catch (error) {
    const problem = isAbsent(error) ? "keybearer is not running" : errorMessage(error);
    return { problem, next: null, final: false };
  }
  if (response.statusCode !== 200) {
    const answer = await text(response).catch(() => "");
    // 503 while it starts. Every other status stays as it is.
    return { ...describeRefusal(response.statusCode, answer), final: response.statusCode !== 503 };
  }
  let rest = "";
  response.setEncoding("utf8");
  try {
    for await (const part of response as AsyncIterable<string>) {
      const lines = (rest + part).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) yield JSON.parse(line);
    }
  } catch (error) {
    // A daemon that is killed breaks off in the middle of the response.
    if (!hasCode(error, "ECONNRESET")) throw error;
  }
  return { problem: "keybearer stopped", next: null, final: false };
}

function describeRefusal(status: number | undefined, body: string): Problem {
  if (status === 404)
    return {
      problem: "the running keybearer is older than this program and cannot be followed",
      next: "restart it",
    };
  try {
    return { problem: String(JSON.parse(body).error), next: null };
  } catch {
    return { problem: `keybearer answered ${status}`, next: null };
  }
}

async function send(
  socket: string,
  method: string,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<IncomingMessage> {
  const headers = { [PEER_HEADER]: String(process.pid) };
  // A connection of its own: a kept one may lead to a daemon that has stopped since.
  const options: RequestOptions = { socketPath: socket, method, path, headers, agent: false };
  if (signal !== undefined) options.signal = signal;
  const request = httpRequest(options);
  // Once the response has begun, its own error is the one that counts. Without a listener this one would end the process.
  request.on("error", () => {});
  request.end(body === undefined ? undefined : JSON.stringify(body));
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return response;
}

/** Nothing listens on the socket. */
function isAbsent(error: unknown): boolean {
  return hasCode(error, "ENOENT", "ECONNREFUSED");
}

/** Only a living process accepts a connection, however busy it is: the kernel does it. */
export function isDaemonListening(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
