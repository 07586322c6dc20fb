import { readableLine } from "../../../core/log.ts";
import type { ServiceManager } from "../../../service/manager.ts";
import { printable } from "../../ui/text.ts";

/** A line of the service's log as it would stand in a terminal; what is no JSON is the manager's own word. */
export function logLine(line: string): string {
  return printable(line.startsWith("{") ? readableLine(line).trimEnd() : line);
}

/** The same for programs, which read each line as JSON: a line of ours as it is, the manager's own word as a message. */
export function jsonLine(line: string, from: ServiceManager["kind"]): string {
  return isRecord(line) ? line : JSON.stringify({ from, msg: line });
}

function isRecord(line: string): boolean {
  if (!line.startsWith("{")) return false;
  try {
    JSON.parse(line);
    return true;
  } catch {
    return false;
  }
}

/** The last ones, to stand below what went wrong; or why there are none. */
export async function lastLines(manager: ServiceManager, lines: number): Promise<string[]> {
  const found: string[] = [];
  const done = await manager.logs({ follow: false, lines, onLine: (line) => void found.push(logLine(line)) });
  if (found.length > 0) return ["the last lines of its log:", ...found.map((line) => `  ${line}`)];
  return done.ok ? [] : [done.why];
}
