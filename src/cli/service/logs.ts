import { lstatSync } from "node:fs";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import { readableLine } from "../../core/log.ts";
import { logFileIn } from "../../service/log-file.ts";
import { readLogFile } from "../../service/service.ts";
import { exitOnClosedOutput, fail } from "../ui/messages.ts";
import { stdio } from "../ui/stdio.ts";
import { printable } from "../ui/text.ts";
import {
  answeringManager,
  type ContextOptions,
  describeResult,
  installedContext,
  type ServiceManager,
  serviceHere,
} from "./context.ts";

export interface LogsOptions {
  readonly follow?: boolean;
  readonly lines: string;
  readonly json?: boolean;
}

export async function logs(options: LogsOptions, overrides: ContextOptions = {}): Promise<void> {
  if (!/^\d{1,6}$/.test(options.lines))
    return fail(`-n takes a whole number, not "${options.lines}"`, EXIT.usage);
  const context = await installedContext(overrides);
  const file = logFileIn(context.shellPaths);
  // A link that leads nowhere is there, too, and keeps `start` from writing.
  const hasFile = lstatSync(file, { throwIfNoEntry: false }) !== undefined;
  // Without the file the manager's log may have lines of a service that is gone.
  const service = (await serviceHere(context)) ?? (hasFile ? null : await answeringManager(context));
  if (service === null && !hasFile)
    return fail(
      `there is no log: the service is not installed, and ${file} is not there. ${advice.start()} writes it; ${advice.run()} prints its log in its terminal`,
      EXIT.failed,
    );
  exitOnClosedOutput();
  const interrupt = new AbortController();
  const onSignal = () => interrupt.abort();
  process.once("SIGINT", onSignal).once("SIGTERM", onSignal);
  const request = {
    follow: options.follow ?? false,
    lines: Number(options.lines),
    onLine: (line: string) => {
      const from = service?.kind ?? "keybearer";
      stdio().stdout.write(`${options.json ? jsonLine(line, from) : readable(line)}\n`);
    },
    signal: interrupt.signal,
  };
  const result =
    service === null ? await readLogFile(context.run, file, request) : await service.logs(request);
  process.off("SIGINT", onSignal).off("SIGTERM", onSignal);
  if (!result.ok) fail(describeResult(result), EXIT.failed);
}

/** The last lines of the log, to print below an error; or why there are none. */
export async function lastLines(manager: ServiceManager, count: number): Promise<string[]> {
  const found: string[] = [];
  const result = await manager.logs({
    follow: false,
    lines: count,
    onLine: (line) => {
      found.push(readable(line));
    },
  });
  if (found.length > 0) return ["the last lines of its log:", ...found.map((line) => `  ${line}`)];
  return result.ok ? [] : [result.problem];
}

/** A line that is not JSON comes from the service manager, or was written before the log was open. */
function readable(line: string): string {
  return printable(line.startsWith("{") ? readableLine(line).trimEnd() : line);
}

/** For programs, every line is JSON. */
function jsonLine(line: string, from: string): string {
  return isJsonObject(line) ? line : JSON.stringify({ from, msg: line });
}

function isJsonObject(line: string): boolean {
  if (!line.startsWith("{")) return false;
  try {
    JSON.parse(line);
    return true;
  } catch {
    return false;
  }
}
