import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { formatScalar } from "../../config/edit-layout.ts";
import { loadConfig } from "../../config/load.ts";
import { parseConfig } from "../../config/parse.ts";
import { type Config, describeSource, type KeySource } from "../../config/schema.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { isInside, type KeyReading, readKey } from "../../keys/sources.ts";
import { forgetKey, type KeyPlace, keychainThere, storeKey, whyNotStored } from "../../keys/store.ts";
import { canceled, fail, failNull, notice } from "../ui/messages.ts";
import type { Prompter } from "../ui/prompts.ts";

export type Store = KeyPlace["kind"];

export interface StoreOptions {
  readonly store?: string;
  readonly yes?: boolean;
}

/**
 * Where a new key is stored: as the options say, else where the old one was, else in the keychain if there is one. Asked before
 * the key, so that no key is typed for a keychain that does not accept it. null: the reason was printed.
 */
export async function chooseStore(
  options: StoreOptions,
  prompter: Prompter | null,
  before: Store | null = null,
): Promise<Store | null> {
  if (options.store !== undefined && options.store !== "file" && options.store !== "keychain")
    return failNull("--store takes keychain or file", EXIT.usage);
  const chosen = options.store ?? before;
  if (chosen === "file") return "file";
  const { there, why } = await keychainThere({ env: process.env });
  if (!there && chosen === null) return "file";
  const asked = options.yes ? null : prompter;
  if (there && chosen === null && asked !== null) return askStore(asked, "keychain");
  const fault = there ? await whyNotStored({ env: process.env }) : (why ?? "there is no keychain here");
  if (fault === null) return "keychain";
  if (asked !== null && options.store === undefined) {
    notice(fault);
    return askStore(asked, "file");
  }
  return failNull(
    `${fault} → --store file keeps the key in a file of your own\nnothing was changed`,
    EXIT.failed,
  );
}

/** Asks until the answer is a place that accepts a key. */
async function askStore(prompter: Prompter, usual: Store): Promise<Store | null> {
  const answer = await prompter.text(`where to keep the key, keychain or file [${usual}]: `);
  if (answer === null) return canceled();
  const said = answer.trim().toLowerCase() || usual;
  if (said === "file") return "file";
  if (said !== "keychain") return askStore(prompter, usual);
  const fault = await whyNotStored({ env: process.env });
  if (fault === null) return "keychain";
  notice(fault);
  return askStore(prompter, "file");
}

/**
 * A place that no tool's key has yet: <tool>, then <tool>-2. A new name each time, because the daemon only reloads what changes
 * in config.yaml. The names of other tools are reserved: without `key:` their keys are stored under these. A place that holds
 * this very key and is not named in config.yaml, as after a command that was killed, is used again.
 */
export async function freePlace(
  store: Store,
  tool: string,
  tools: Config["tools"],
  paths: Paths,
  key: Secret,
): Promise<KeyPlace> {
  const folder = join(keyFolder(paths), "keys");
  const others = Object.keys(tools).filter((name) => name !== tool);
  const sources = Object.values(tools).map(({ key }) => key);
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? tool : `${tool}-${number}`;
    const place: KeyPlace =
      store === "keychain"
        ? { kind: "keychain", service: "keybearer", account: name }
        : { kind: "file", path: join(folder, name) };
    if (others.includes(name) || sources.some((source) => isSameSource(source, place))) continue;
    if (!(await isTaken(place, key))) return place;
  }
}

async function isTaken(place: KeyPlace, key: Secret): Promise<boolean> {
  if (place.kind === "file" && !existsSync(place.path)) return false;
  const found = await readKey(place, { env: process.env });
  // A file that cannot be read takes the name, too.
  return found.ok ? !found.key.equals(key) || found.warning !== null : place.kind === "file";
}

/** The place of a tool's key if keybearer stored it there and may delete it; null: it is the person's own. */
export function ownPlace(source: KeySource, paths: Paths): KeyPlace | null {
  if (source.kind === "keychain") return source;
  if (source.kind !== "file" || !isInside(source.path, paths.own)) return null;
  // Only in keys/: the folder also holds config.yaml.
  const ours =
    basename(dirname(source.path)) === "keys" && dirname(dirname(source.path)) === keyFolder(paths);
  return ours ? source : null;
}

/** As config.yaml has it. `~/` stays right when the home folder moves. */
export function sourceText(place: KeyPlace, { home }: Paths): string {
  if (place.kind === "keychain") return `keychain:${place.service}/${place.account}`;
  return `file:${isInside(place.path, [home]) ? `~${place.path.slice(home.length)}` : place.path}`;
}

export function isSameSource(one: KeySource, other: KeySource): boolean {
  if (one.kind === "literal" && other.kind === "literal") return one.secret.equals(other.secret);
  return one.kind !== "literal" && isDeepStrictEqual(one, other);
}

function keyFolder(paths: Paths): string {
  return paths.own[0] ?? dirname(paths.config);
}

export type From = { readonly source: KeySource } | { readonly fault: string };

/** Parses `--from` as config.yaml is parsed. It may be a key by mistake, so it is never printed. */
export function readFrom(text: string, home: string): From {
  if (/^(?:command|op):/.test(text))
    return {
      fault: "a command is written into config.yaml by hand: key: { command: [/absolute/program, argument] }",
    };
  if (!/^(?:env|file|keychain):/.test(text))
    return {
      fault:
        "--from takes env:NAME, file:/PATH or keychain:keybearer/NAME. a key itself is never an argument → --key-stdin",
    };
  const trial = `gateway: https://gateway.example.com/v1\ntools: { x: { key: ${formatScalar(text)} } }\n`;
  const { config, problems } = parseConfig(trial, home);
  const source = config?.tools.x?.key;
  if (source !== undefined) return { source };
  const [problem] = problems;
  return { fault: `--from: ${problem?.message ?? "not understood"} → ${problem?.hint ?? "env:NAME"}` };
}

/** Whether other options contradict `--from`; null: they do not. */
export function fromConflict(options: {
  readonly from?: string;
  readonly keyStdin?: boolean;
  readonly store?: string;
}): string | null {
  if (options.from === undefined || (!options.keyStdin && options.store === undefined)) return null;
  return "with --from the key stays where it is: leave --key-stdin and --store out";
}

/**
 * Reads a tool's key if that runs no command and opens no file that may not be trusted yet: only the daemon decides that.
 * null: not read.
 */
export async function readOwn(source: KeySource, paths: Paths): Promise<KeyReading | null> {
  if (source.kind === "command") return null;
  if (source.kind === "file" && !isInside(source.path, paths.own)) return null;
  return readNamed(source, paths);
}

/** The same for a source that the person names in this command. */
export function readNamed(source: KeySource, paths: Paths): Promise<KeyReading> {
  return readKey(source, { env: process.env, home: paths.own, notKeys: paths.notKeys });
}

/**
 * Stores a key, then has config.yaml name it. If that fails, or the person presses Ctrl-C in between, the key is deleted again,
 * because nothing would show that it is there. False: the reason was printed.
 */
export function storeNamedKey(
  paths: Pick<Paths, "config" | "home">,
  place: KeyPlace,
  key: Secret,
  nameInConfig: () => Promise<boolean>,
): Promise<boolean> {
  const env = process.env;
  return deferSignals(async (interrupted) => {
    const stored = await storeKey(place, key, { env });
    if (!stored.ok) {
      fail(`the key was not stored: ${stored.reason}\nnothing was changed`, EXIT.failed);
      return false;
    }
    if (interrupted()) fail("stopped; nothing was changed", EXIT.failed);
    else if (await nameInConfig()) {
      // Another command that had stored it may have deleted it before the file named it.
      if (!stored.made) await storeKey(place, key, { env });
      return true;
    }
    // Another command may have named it meanwhile.
    if (stored.made && !(await isNamed(paths, place))) {
      const deleted = await forgetKey(place, { env });
      if (!deleted.ok)
        notice(`the key that was just stored is still in ${describeSource(place)}: ${deleted.reason}`);
    }
    return false;
  });
}

/** A file with problems may name it, too. */
export async function isNamed(
  { config: file, home }: Pick<Paths, "config" | "home">,
  place: KeyPlace,
): Promise<boolean> {
  const { config, found } = await loadConfig(file, { home, strict: false });
  if (config === null) return found;
  return Object.values(config.tools).some(({ key }) => isSameSource(key, place));
}

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Runs work that must not be interrupted. Ctrl-C has no effect until it ends; `interrupted` tells whether one was pressed. */
export async function deferSignals<Done>(work: (interrupted: () => boolean) => Promise<Done>): Promise<Done> {
  let isInterrupted = false;
  const interrupt = () => {
    isInterrupted = true;
  };
  for (const signal of SIGNALS) process.on(signal, interrupt);
  try {
    return await work(() => isInterrupted);
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupt);
  }
}
