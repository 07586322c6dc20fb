import { createLogger, type Logger } from "../../src/core/log.ts";

/** A real logger whose lines go to `lines`, or nowhere. */
export function quietLog(lines: string[] = []): Logger {
  return createLogger({
    level: "info",
    destination: { write: (line: string) => void lines.push(line) },
    forPeople: false,
    secrets: [() => []],
  });
}
