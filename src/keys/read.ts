import { describeSource, type KeySource } from "../config/schema.ts";
import { keyFault, Secret } from "../core/secret.ts";
import { type CommandAs, runKeyCommand } from "./sources/command.ts";
import { readKeyFile, type SourceText } from "./sources/file.ts";
import { readKeychain } from "./sources/keychain.ts";
import { plain } from "./words.ts";

export interface ReadDeps {
  /** Where env: looks, what a command inherits, and where the keychain is found. */
  readonly env: NodeJS.ProcessEnv;
  /** Names of variables that a command must not see: they hold keys of other tools. Default none. */
  readonly withhold?: readonly string[] | undefined;
  /** keybearer's own folders: a file: written as inside them must really lie there. Default none. */
  readonly home?: readonly string[] | undefined;
  /** Where keybearer keeps its state: no file: there is a key. Default nowhere. */
  readonly notKeys?: readonly string[] | undefined;
  /** Ends a command, or a look into the keychain, that nobody waits for any more. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds a command, a file or the keychain may take. Default 10 s. */
  readonly limit?: number | undefined;
  /** It is a password, which a person chose: no rule says what it looks like. Default a key. */
  readonly password?: boolean | undefined;
  /** How a command is started. Default as it is. */
  readonly as?: CommandAs | undefined;
}

export type Reading =
  /** A warning does not keep the key from being used, such as a file that others may open. */
  | { readonly ok: true; readonly key: Secret; readonly warning: string | null }
  | { readonly ok: false; readonly reason: string; readonly unasked?: boolean; readonly absent?: boolean };

const DEFAULT_LIMIT = 10_000;

/** Reads a key from its source. Never throws, and never says the key in a reason. */
export async function readKey(source: KeySource, deps: ReadDeps): Promise<Reading> {
  const { env, withhold = [], home = [], notKeys = [], signal, limit = DEFAULT_LIMIT, as } = deps;
  const checked = deps.password === true ? asPassword : asKey;
  switch (source.kind) {
    case "literal":
      // Checked when config.yaml was read, where its line can be shown.
      return { ok: true, key: source.secret, warning: null };
    case "env":
      return checked(source, variable(source.name, env));
    case "file":
      return checked(source, await readKeyFile(source.path, { home, notKeys }, limit));
    case "command":
      return checked(source, await runKeyCommand(source.argv, { env, withhold, signal, limit, as }));
    case "keychain":
      return checked(source, await readKeychain(source, { env, signal, limit }));
  }
}

function asPassword(source: KeySource, found: SourceText): Reading {
  if (!found.ok) return found;
  if (!/[\r\n]/.test(found.text)) return { ok: true, key: new Secret(found.text), warning: found.warning };
  return { ok: false, reason: `the password has a line break in it (from ${plain(describeSource(source))})` };
}

function asKey(source: KeySource, found: SourceText): Reading {
  if (!found.ok) return found;
  const fault = keyFault(found.text);
  if (fault === null) return { ok: true, key: new Secret(found.text), warning: found.warning };
  const reason = `incomplete key: ${fault} (from ${plain(describeSource(source))})`;
  return { ok: false, reason, absent: true };
}

function variable(name: string, env: NodeJS.ProcessEnv): SourceText {
  const text = Object.hasOwn(env, name) ? env[name] : undefined;
  if (text !== undefined && text !== "") return { ok: true, text, warning: null };
  const state = text === undefined ? "not set" : "empty";
  return {
    ok: false,
    reason: `the variable ${name} is ${state} for keybearer: a service does not see the variables of your shell, so use file: or command: there`,
  };
}
