import { type DestinationStream, type Logger as PinoLogger, pino } from "pino";
import { typeable } from "./command-name.ts";
import { Secret } from "./secret.ts";
import { dollars, duration, localTime } from "./units.ts";

export type Logger = PinoLogger;

interface LoggerOptions {
  readonly level: string;
  readonly destination: DestinationStream;
  /** Lines for a person at a terminal instead of JSON. */
  readonly forPeople: boolean;
  /** The secrets that must not be written. Each source returns a new list when its secrets change. */
  readonly secrets: readonly (() => readonly Secret[])[];
}

/** Field names that may hold a credential by mistake. */
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
  const { level, destination, forPeople } = options;
  const redactSecrets = secretRedactor(options.secrets);
  // Redaction by field name misses a secret inside a message, so the finished line is searched too.
  const finish = (line: string) => (forPeople ? readableLine(redactSecrets(line)) : redactSecrets(line));
  return pino(
    {
      level,
      base: null,
      redact: { paths: CREDENTIAL_FIELDS.map((field) => `["${field}"]`), censor: CENSOR },
      serializers: { err: serializeError },
      formatters: { level: (label) => ({ level: label }), log: censorInner },
      timestamp: pino.stdTimeFunctions.isoTime,
      hooks: { streamWrite: finish },
    },
    destination,
  );
}

function secretRedactor(sources: LoggerOptions["secrets"]): (line: string) => string {
  let lists: (readonly Secret[])[] = [];
  let secrets = Secret.together([]);
  return (line) => {
    // Secrets change rarely. The search is prepared only then.
    if (lists.length === 0 || sources.some((source, i) => source() !== lists[i])) {
      lists = sources.map((source) => source());
      secrets = Secret.together(lists.flat());
    }
    return secrets.redactFrom(line);
  };
}

/** The same names one level down. pino's own `*.key` would walk through every value of every line. */
function censorInner(fields: Record<string, unknown>): Record<string, unknown> {
  let clean = fields;
  for (const name in fields) {
    const value = fields[name];
    if (typeof value !== "object" || value === null) continue;
    const found = CREDENTIAL_FIELDS.filter((field) => Object.hasOwn(value, field));
    if (found.length === 0) continue;
    const shown = value instanceof Error ? serializeError(value) : value;
    const censored = { ...shown, ...Object.fromEntries(found.map((field) => [field, CENSOR])) };
    clean = { ...clean, [name]: censored };
  }
  return clean;
}

/** Leaves out an error's other properties: Node's parser puts received bytes there, in which a token cannot be recognized. */
function serializeError(error: unknown): object {
  // censorInner replaced it, or what was thrown is not an error.
  if (!(error instanceof Error)) return error instanceof Object ? error : { message: String(error) };
  const { name, message, stack } = error;
  const code = "code" in error ? { code: String(error.code) } : {};
  return { type: name, message, ...code, stack };
}

const HEADING = ["level", "time", "msg"];

/** A log line for a person. A line that is not JSON stays as it is. */
export function readableLine(line: string): string {
  let entry: Record<string, unknown>;
  try {
    entry = JSON.parse(line);
  } catch {
    return line;
  }
  const at = Date.parse(String(entry.time));
  const time = Number.isNaN(at) ? "" : localTime(at).slice(-8);
  const rest = Object.entries(entry)
    .filter(([name, value]) => !HEADING.includes(name) && value !== null)
    .map(([name, value]) => readableField(name, value))
    .join(" ");
  const level = entry.level === "info" ? "" : `${String(entry.level)}: `;
  // A decoded text may hold an escape sequence for the terminal.
  const text = `${level}${String(entry.msg ?? "")}${rest === "" ? "" : `  ${rest}`}`.replace(/\p{Cc}/gu, "?");
  // Not as it can be typed here: that depends on the working folder, which may be gone, and then Node throws.
  return `${time} ${typeable(text, "anywhere")}\n`;
}

/** cost=$0.0053 instead of cost_microdollars=5252, took=1.2 s instead of ms=1204, a time instead of first_at=1794984847142. */
function readableField(name: string, value: unknown): string {
  if (typeof value === "number" && name === "ms") return `took=${duration(value)}`;
  if (typeof value === "number" && name.endsWith("_ms")) return `${name.slice(0, -3)}=${duration(value)}`;
  if (typeof value === "number" && name.endsWith("_microdollars"))
    return `${name.slice(0, -"_microdollars".length)}=${dollars(value)}`;
  if (typeof value === "number" && /(?:^until|_at)$/.test(name)) return `${name}=${localTime(value)}`;
  return `${name}=${typeof value === "object" ? JSON.stringify(value) : String(value)}`;
}
