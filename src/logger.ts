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
  "x-api-key",
  "api-key",
  "x-goog-api-key",
  "cookie",
  "key",
  "token",
  "password",
  "secret",
];

const CENSOR = "[redacted]";

export function createLogger(options: LoggerOptions): Logger {
  return pino(
    {
      level: options.level,
      base: null,
      redact: { paths: CREDENTIAL_FIELDS.map((field) => `["${field}"]`), censor: CENSOR },
      formatters: { level: (label) => ({ level: label }), log: censorInner },
      timestamp: isoTime(),
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

/** As pino's own, which makes a Date for every line: here one for every second. */
function isoTime(): () => string {
  let second = Number.NaN;
  let beginning = "";
  return () => {
    const now = Date.now();
    const within = now - second;
    if (!(within >= 0 && within < 1000)) {
      second = Math.floor(now / 1000) * 1000;
      beginning = `,"time":"${new Date(second).toISOString().slice(0, -4)}`;
    }
    return `${beginning}${String(now - second).padStart(3, "0")}Z"`;
  };
}

/**
 * The same names one level down. pino's own way of saying so, `*.key`, walks through every value of every line, numbers
 * too; here only the few that are objects are looked into.
 */
function censorInner(fields: Record<string, unknown>): Record<string, unknown> {
  let clean = fields;
  for (const name in fields) {
    const value = fields[name];
    if (typeof value !== "object" || value === null) continue;
    const found = CREDENTIAL_FIELDS.filter((field) => Object.hasOwn(value, field));
    if (found.length === 0) continue;
    // What matters of an error is not enumerable.
    const shown = value instanceof Error ? pino.stdSerializers.err(value) : value;
    const censored = { ...shown, ...Object.fromEntries(found.map((field) => [field, CENSOR])) };
    clean = { ...clean, [name]: censored };
  }
  return clean;
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
