import { type DestinationStream, type Logger as PinoLogger, pino } from "pino";
import { Secret } from "./secret.ts";

export type Logger = PinoLogger;

/** The daemon's own, which also takes lines that are written by the thousand. */
export interface LineLogger extends Logger {
  /**
   * Writes a line whose fields are JSON already: `"name":value` with commas between. They must be such that nothing in
   * them could need redaction by its name.
   */
  writeLine(level: "info" | "warn", fields: string, message: string): void;
}

export interface LoggerOptions {
  readonly level: string;
  readonly destination: DestinationStream;
  /** Lines for a person at a terminal instead of JSON. */
  readonly forPeople: boolean;
  /**
   * Every secret known at this moment, to be taken out of whatever is about to be written. Another list whenever they
   * changed, the same one while they did not.
   */
  readonly secrets: () => readonly Secret[];
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

export function createLogger(options: LoggerOptions): LineLogger {
  const { level, destination, forPeople } = options;
  const time = isoTime();
  const redact = blotting(options.secrets);
  // Redaction by field name cannot see a secret inside a message; this looks at what is really written.
  const finished = (line: string) => (forPeople ? readableLine(redact(line)) : redact(line));
  const log = pino(
    {
      level,
      base: null,
      redact: { paths: CREDENTIAL_FIELDS.map((field) => `["${field}"]`), censor: CENSOR },
      serializers: { err: shownError },
      formatters: { level: (label) => ({ level: label }), log: censorInner },
      timestamp: time,
      hooks: { streamWrite: finished },
    },
    destination,
  );
  const writeLine: LineLogger["writeLine"] = (level, fields, message) => {
    if (!log.isLevelEnabled(level)) return;
    destination.write(finished(`{"level":"${level}"${time()},${fields},"msg":${jsonText(message)}}\n`));
  };
  return Object.assign(log, { writeLine });
}

/** Takes all secrets out of a line. They change rarely, and how to look for them is worked out only then. */
function blotting(secrets: () => readonly Secret[]): (line: string) => string {
  let known: readonly Secret[] = [];
  let together = Secret.together(known);
  return (line) => {
    const now = secrets();
    if (now !== known) {
      known = now;
      together = Secret.together(now);
    }
    return together.redactFrom(line);
  };
}

/** What stands in a JSON text as it is. */
const PLAIN = /^[ !#-[\]-~]*$/;

/** A text as JSON. Nearly all need nothing but the quotes, and to see that is far cheaper than to ask JSON. */
export function jsonText(text: string): string {
  return PLAIN.test(text) ? `"${text}"` : JSON.stringify(text);
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
    const ms = now - second;
    return `${beginning}${ms < 10 ? "00" : ms < 100 ? "0" : ""}${ms}Z"`;
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
    const shown = value instanceof Error ? shownError(value) : value;
    const censored = { ...shown, ...Object.fromEntries(found.map((field) => [field, CENSOR])) };
    clean = { ...clean, [name]: censored };
  }
  return clean;
}

/**
 * What is written of an error. Not its other properties: Node's parser, for one, puts the bytes it got into them, in which a
 * token could not be recognized.
 */
function shownError(error: unknown): object {
  // censorInner has been there before, or something else than an error was thrown.
  if (!(error instanceof Error)) return error instanceof Object ? error : { message: String(error) };
  const { name, message, stack } = error;
  const code = "code" in error ? { code: String(error.code) } : {};
  return { type: name, message, ...code, stack };
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
