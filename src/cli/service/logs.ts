import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import { readableLine } from "../../core/log.ts";
import { exitOnClosedOutput, fail } from "../ui/messages.ts";
import { stdio } from "../ui/stdio.ts";
import { printable } from "../ui/text.ts";
import { type ContextOptions, installedContext, reachManager, type ServiceManager } from "./context.ts";

export interface LogsOptions {
  readonly follow?: boolean;
  readonly lines: string;
  readonly json?: boolean;
}

export async function logs(options: LogsOptions, overrides: ContextOptions = {}): Promise<void> {
  if (!/^\d{1,6}$/.test(options.lines))
    return fail(`-n takes a whole number, not "${options.lines}"`, EXIT.usage);
  const manager = await reachManager(await installedContext(overrides));
  if (manager === null) return;
  exitOnClosedOutput();
  const interrupt = new AbortController();
  const onSignal = () => interrupt.abort();
  process.once("SIGINT", onSignal).once("SIGTERM", onSignal);
  const result = await manager.logs({
    follow: options.follow ?? false,
    lines: Number(options.lines),
    onLine: (line) => {
      stdio().stdout.write(`${options.json ? jsonLine(line, manager.kind) : readable(line)}\n`);
    },
    signal: interrupt.signal,
  });
  process.off("SIGINT", onSignal).off("SIGTERM", onSignal);
  if (!result.ok) fail(`${result.why}\n→ ${advice.serviceStatus()}`, EXIT.failed);
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
  return result.ok ? [] : [result.why];
}

/** A line that is not JSON comes from the service manager. */
function readable(line: string): string {
  return printable(line.startsWith("{") ? readableLine(line).trimEnd() : line);
}

/** For programs, every line is JSON. */
function jsonLine(line: string, from: ServiceManager["kind"]): string {
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
