import { constants, existsSync } from "node:fs";
import { open } from "node:fs/promises";
import { dirname } from "node:path";
import { createSecureContext } from "node:tls";
import { errorMessage, hasCode } from "../core/errors.ts";
import { configModeFault } from "../core/paths.ts";
import { notYetHeld } from "./not-yet.ts";
import { type Parsed, parseConfig } from "./parse.ts";
import { type Problem, warning } from "./problem.ts";
import type { CertificateAuthority, Config, Gateway } from "./shape.ts";

export interface Loaded {
  /** false: there is no such file. */
  readonly found: boolean;
  /** The file's text, or null where it could not be read. */
  readonly text: string | null;
  /** null when something is wrong enough that the file must not be used. */
  readonly config: Config | null;
  readonly problems: readonly Problem[];
  /** What the text alone says. */
  readonly parsed: Parsed | null;
}

export interface LoadOptions {
  /** The person's home folder, for `~/`. */
  readonly home: string;
  /** true: who else may read the file is an error where a key lies in it. false: always a warning. */
  readonly strict: boolean;
  /** As it was last loaded: the same text is not parsed again. */
  readonly before?: Loaded;
}

const MOST_BYTES = 1_000_000;

/** Reads and checks a config.yaml, and who else can read it. Changes nothing. */
export async function loadConfig(file: string, options: LoadOptions): Promise<Loaded> {
  const read = await readText(file);
  const { text } = read;
  if (text === null)
    return { found: read.found, text, config: null, problems: [failure(read.fault)], parsed: null };
  const { home, strict, before } = options;
  const known = before?.text === text ? before.parsed : null;
  const parsed = known ?? parseConfig(text, home);
  if (parsed.config === null) return { found: true, text, config: null, problems: parsed.problems, parsed };
  const { config, problems } = await withAuthorities(parsed.config);
  const around = [
    ...problems,
    ...modeProblems(file, config, strict),
    ...gitProblems(file, config),
    ...notYet(config),
  ];
  const usable = around.every((problem) => problem.severity === "warning");
  return {
    found: true,
    text,
    config: usable ? config : null,
    problems: [...parsed.problems, ...around],
    parsed,
  };
}

/** The configuration with what its ca_files hold. */
async function withAuthorities(
  config: Config,
): Promise<{ readonly config: Config; readonly problems: readonly Problem[] }> {
  const problems: Problem[] = [];
  const gateways: Record<string, Gateway> = Object.create(null);
  for (const [name, gateway] of Object.entries(config.gateways)) {
    gateways[name] = gateway;
    if (gateway.authority === null) continue;
    const read = await readAuthority(gateway.authority);
    if (typeof read === "string")
      problems.push({ ...warning(`gateways.${name}.ca_file`, read), severity: "error" });
    else gateways[name] = Object.freeze({ ...gateway, authority: read });
  }
  return { config: Object.freeze({ ...config, gateways: Object.freeze(gateways) }), problems };
}

/** Or why it cannot be used. */
async function readAuthority({ file }: CertificateAuthority): Promise<CertificateAuthority | string> {
  const read = await readText(file);
  if (read.text === null) return read.fault;
  const pem = read.text;
  try {
    createSecureContext({ ca: pem });
  } catch (error) {
    return `${file} holds a certificate that cannot be read: ${errorMessage(error)}`;
  }
  if (!pem.includes("-----BEGIN CERTIFICATE-----")) return `${file} holds no certificate in PEM format`;
  return Object.freeze({ file, pem });
}

export type Read = { found: boolean; text: null; fault: string } | { found: true; text: string };

/** The text of a configuration, or why it cannot be had. */
export async function readText(file: string): Promise<Read> {
  try {
    // O_NONBLOCK: opening a fifo would otherwise wait for somebody to write into it, and every later save with it.
    const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) return { found: true, text: null, fault: `${file} is not a file` };
      if (stat.size > MOST_BYTES)
        return { found: true, text: null, fault: `${file} is larger than 1 MB: not read` };
      const bytes = await handle.readFile();
      return { found: true, text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
    } finally {
      await handle.close();
    }
  } catch (error) {
    const found = !hasCode(error, "ENOENT");
    if (error instanceof TypeError) return { found, text: null, fault: `${file} is not UTF-8 text` };
    return {
      found,
      text: null,
      fault: found ? `${file} cannot be read: ${errorMessage(error)}` : `there is no ${file}`,
    };
  }
}

function modeProblems(file: string, config: Config, strict: boolean): Problem[] {
  const fault = configModeFault(file);
  if (fault === null) return [];
  const problem = warning("", fault.message, fault.hint);
  return [strict && holdsLiteral(config) ? { ...problem, severity: "error" } : problem];
}

function gitProblems(file: string, config: Config): Problem[] {
  if (!holdsLiteral(config)) return [];
  for (let folder = dirname(file); folder !== dirname(folder); folder = dirname(folder)) {
    if (existsSync(`${folder}/.git`)) {
      const hint = "use env:, file: or command:, so that no commit can carry the key away";
      return [warning("", `a key lies in ${file}, inside the git work tree ${folder}`, hint)];
    }
  }
  return [];
}

function notYet(config: Config): Problem[] {
  return notYetHeld(config).map(({ path, message }) => warning(path, message));
}

function holdsLiteral(config: Config): boolean {
  const logins = Object.values(config.gateways).flatMap(({ console }) =>
    (console?.logins ?? []).flatMap((login) => [login.password, login.accessToken, login.refreshToken]),
  );
  const keys = Object.values(config.tools).map((tool) => tool.key);
  return [...keys, ...logins].some((source) => source?.kind === "literal");
}

function failure(message: string): Problem {
  return { ...warning("", message), severity: "error" };
}
