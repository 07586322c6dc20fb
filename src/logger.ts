import { type DestinationStream, type Logger as PinoLogger, pino } from "pino";
import type { Secret } from "./secret.ts";

export type Logger = PinoLogger;

export interface LoggerOptions {
  readonly level: string;
  readonly destination: DestinationStream;
  /** Lines for a person at a terminal instead of JSON. */
  readonly forPeople: boolean;
  /** Every secret known at this moment, to be taken out of whatever is about to be written. */
  readonly secrets: () => Iterable<Secret>;
}

/** Names under which a credential could travel into a log line by mistake. */
const CREDENTIAL_FIELDS = [
  "authorization",
  "Authorization",
  '["x-api-key"]',
  '["api-key"]',
  '["x-goog-api-key"]',
  "cookie",
  "key",
  "token",
  "password",
  "secret",
];

export function createLogger(options: LoggerOptions): Logger {
  const redact = CREDENTIAL_FIELDS.flatMap((field) => [
    field,
    field.startsWith("[") ? `*${field}` : `*.${field}`,
  ]);
  return pino(
    {
      level: options.level,
      base: null,
      redact: { paths: redact, censor: "[redacted]" },
      formatters: { level: (label) => ({ level: label }) },
      timestamp: pino.stdTimeFunctions.isoTime,
      hooks: {
        // Redaction by field name cannot see a secret inside a message; this looks at what is really written.
        streamWrite: (line) => {
          let clean = line;
          for (const secret of options.secrets()) clean = secret.blotFrom(clean);
          return options.forPeople ? readableLine(clean) : clean;
        },
      },
    },
    options.destination,
  );
}

const HEADING = ["level", "time", "msg"];

/** A line of the log for a person; one that is none of ours stays as it is. */
export function readableLine(line: string): string {
  let entry: Record<string, unknown>;
  try {
    entry = JSON.parse(line);
  } catch {
    return line;
  }
  const time = String(entry.time ?? "").slice(11, 19);
  const rest = Object.entries(entry)
    .filter(([name, value]) => !HEADING.includes(name) && value !== null)
    .map(([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : String(value)}`)
    .join(" ");
  const level = entry.level === "info" ? "" : `${String(entry.level)}: `;
  // Decoded again, a text from elsewhere could carry an escape sequence to the terminal.
  const text = `${level}${String(entry.msg ?? "")}${rest === "" ? "" : `  ${rest}`}`.replace(/\p{Cc}/gu, "?");
  return `${time} ${text}\n`;
}
