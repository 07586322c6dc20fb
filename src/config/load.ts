import { constants, existsSync } from "node:fs";
import { open } from "node:fs/promises";
import { dirname } from "node:path";
import { configModeFault } from "../places.ts";
import { reason } from "../reason.ts";
import { notYetHeld } from "./not-yet.ts";
import { type Parsed, parseConfig } from "./parse.ts";
import { type Problem, warning } from "./problem.ts";
import type { Config } from "./shape.ts";

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
  const { config, problems } = parsed;
  if (config === null) return { found: true, text, config, problems, parsed };
  const around = [...modeProblems(file, config, strict), ...gitProblems(file, config), ...notYet(config)];
  const usable = around.every((problem) => problem.severity === "warning");
  return { found: true, text, config: usable ? config : null, problems: [...problems, ...around], parsed };
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
    const found = (error as NodeJS.ErrnoException).code !== "ENOENT";
    if (error instanceof TypeError) return { found, text: null, fault: `${file} is not UTF-8 text` };
    return {
      found,
      text: null,
      fault: found ? `${file} cannot be read: ${reason(error)}` : `there is no ${file}`,
    };
  }
}

function modeProblems(file: string, config: Config, strict: boolean): Problem[] {
  const fault = configModeFault(file);
  if (fault === null) return [];
  return [strict && holdsLiteral(config) ? failure(fault) : warning("", fault)];
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
    console === null ? [] : [console.login.password, console.login.accessToken, console.login.refreshToken],
  );
  const keys = Object.values(config.tools).map((tool) => tool.key);
  return [...keys, ...logins].some((source) => source?.kind === "literal");
}

function failure(message: string): Problem {
  return { ...warning("", message), severity: "error" };
}
