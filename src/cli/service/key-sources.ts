import { type Config, describeSource, type KeySource, type Tool } from "../../config/schema.ts";
import { consoleSources, type KeyState } from "../../config/snapshot.ts";
import { advice } from "../../core/advice.ts";
import { quoteForShell } from "../../core/display.ts";
import type { CommandAs } from "../../keys/sources.ts";
import type { ServiceSpec } from "../../service/spec.ts";
import { readKeysHere } from "../doctor/keys-here.ts";
import type { ServiceContext, ServiceManager } from "./context.ts";

/* Whether the service will be able to read its keys: a service sees neither the shell's variables nor its terminal. */

export interface SourceNote {
  /** tool codex, the console of main */
  readonly whose: string;
  readonly what: string;
  readonly next: string | null;
  /** The service would not have the key. */
  readonly missing: boolean;
}

export interface SourceCheck {
  readonly notes: readonly SourceNote[];
  /** No enabled tool would have a key. */
  readonly none: boolean;
}

/**
 * Reads every key as the service will: with its variables, its restrictions and the same trust. While the service runs, it has
 * read them itself, so no command is run and no keychain asks for a fingerprint.
 */
export async function checkSources(
  { paths, env }: ServiceContext,
  manager: ServiceManager,
  config: Config,
  spec: ServiceSpec,
  running: boolean,
): Promise<SourceCheck> {
  const tools = usedTools(config);
  const otherVariables = [...consoleVariablesOf(config), ...storeVariables(config)];
  const names = tools.flatMap(({ key }) => (key.kind === "env" ? [key.name] : []));
  names.push(...otherVariables.map(({ name }) => name));
  const given = await manager.environment(names);
  const unset = manager.kind === "systemd" ? manager.unsetVariables() : [];
  const seen = serviceEnvironment(spec, manager.kind, given, unset, env);
  const runsCommands = !running && tools.some(({ key }) => key.kind === "command");
  const as = runsCommands && manager.kind === "systemd" ? await restricted(manager, spec, env) : undefined;
  const keys = await readKeysHere({ config, paths, env: seen, running, as });
  try {
    const about: About = { kind: manager.kind, shell: env, restricted: as !== undefined };
    const notes = tools
      .filter(({ key }) => !running || (key.kind !== "command" && key.kind !== "keychain"))
      .flatMap((tool) => noteOn(tool, keys.keyOf(tool), about) ?? []);
    const missing = notes.filter((note) => note.missing).length;
    for (const { whose, name, next } of otherVariables) {
      if (!seen[name]) notes.push({ whose, what: missingVariable(name, env), next, missing: true });
    }
    return { notes, none: tools.length > 0 && missing === tools.length };
  } finally {
    keys.close();
  }
}

/** The tools that need a key. */
export function usedTools({ tools }: Config): Tool[] {
  return Object.values(tools).filter(({ enabled, watchOnly }) => enabled && !watchOnly);
}

/** A variable with a secret that is no tool's key. */
interface SecretVariable {
  readonly whose: string;
  readonly name: string;
  /** What to do if a service does not see it. */
  readonly next: string;
}

function consoleVariablesOf({ gateways }: Config): SecretVariable[] {
  return Object.values(gateways).flatMap((gateway) => {
    const whose = `the console of ${gateway.name}`;
    const next = advice.mirrorLogin();
    return consoleSources(gateway).flatMap(({ source }) =>
      source.kind === "env" ? [{ whose, name: source.name, next }] : [],
    );
  });
}

function storeVariables({ shared }: Config): SecretVariable[] {
  const sources = { "shared.store.password": shared?.store.password, "shared.secret": shared?.secret };
  return Object.entries(sources).flatMap(([setting, source]) => {
    if (source?.kind !== "env") return [];
    const next = `write it to a file that only you can read, and set ${setting} to file:/PATH`;
    return [{ whose: "the shared store", name: source.name, next }];
  });
}

/** Runs commands with the unit's restrictions; undefined: this machine cannot do that. */
async function restricted(
  manager: ServiceManager & { kind: "systemd" },
  spec: ServiceSpec,
  env: NodeJS.ProcessEnv,
): Promise<CommandAs | undefined> {
  const restrict = await manager.restrictedCommand(spec);
  if (restrict === null) return undefined;
  return (argv, withhold) => ({
    argv: restrict(argv, withhold),
    env: { ...env, LC_ALL: "C", SYSTEMD_COLORS: "0" },
  });
}

/** What launchd gives every agent. systemd lists all that it gives. */
const LOGIN_VARIABLES = ["HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "SSH_AUTH_SOCK", "SECURITYSESSIONID"];

/** The variables that the service will see. `given`: what the manager gives it. `unset`: what the unit removes. */
export function serviceEnvironment(
  spec: ServiceSpec,
  kind: ServiceManager["kind"],
  given: Readonly<Record<string, string>>,
  unset: readonly string[],
  shell: NodeJS.ProcessEnv,
): Record<string, string> {
  const seen: Record<string, string> = {};
  if (kind === "launchd")
    for (const name of LOGIN_VARIABLES) if (shell[name] !== undefined) seen[name] = shell[name];
  for (const [name, value] of Object.entries(given)) if (!unset.includes(name)) seen[name] = value;
  return { ...seen, ...spec.environment };
}

interface About {
  readonly kind: ServiceManager["kind"];
  readonly shell: NodeJS.ProcessEnv;
  /** Commands ran with the unit's restrictions. */
  readonly restricted: boolean;
}

/** null: nothing to say about this tool's key. */
function noteOn({ name, key: source }: Tool, state: KeyState, about: About): SourceNote | null {
  const whose = `tool ${name}`;
  const rotate = advice.rotate(quoteForShell(name));
  if (state.state === "needs-trust") {
    const what = `${state.what} waits for your confirmation: ${state.from} → ${state.to}`;
    return { whose, what, next: advice.trust(quoteForShell(name)), missing: true };
  }
  if (source.kind === "env") return variableNote(whose, source.name, rotate, state, about);
  if (state.state === "ready") return null;
  return { whose, ...unreadable(source, state.reason, rotate, about), missing: true };
}

function unreadable(
  source: KeySource,
  reason: string,
  rotate: string,
  { kind, restricted }: About,
): { readonly what: string; readonly next: string } {
  const where = describeSource(source);
  if (source.kind === "command") {
    const how = `no terminal, no window, its PATH${restricted ? ", its hardening" : ""}`;
    const what = `${where}, run as the service runs it (${how}): ${reason}`;
    return { what, next: restrictionFix(reason, kind) ?? rotate };
  }
  if (source.kind !== "keychain") return { what: `${where}: ${reason}`, next: rotate };
  const what = `${where}: ${reason}. a service that starts before the keychain is unlocked finds it locked`;
  return { what, next: rotate };
}

/** A variable of the shell ends with the shell. One that was given to the manager ends with the session. */
function variableNote(
  whose: string,
  name: string,
  rotate: string,
  state: KeyState,
  { kind, shell }: About,
): SourceNote {
  if (state.state === "ready") {
    const manager = kind === "systemd" ? "the user manager" : "launchd";
    const what = `env:${name} is set in ${manager} now, and may be gone after the next login`;
    return { whose, what, next: rotate, missing: false };
  }
  // From the variable straight into the key store: the key is neither typed nor an argument.
  const next = shell[name] ? `printenv ${name} | ${rotate} --key-stdin` : rotate;
  return { whose, what: missingVariable(name, shell), next, missing: true };
}

function missingVariable(name: string, shell: NodeJS.ProcessEnv): string {
  const why = shell[name] ? "is set in this shell, which a service does not see" : "is not set for a service";
  return `env:${name} ${why}`;
}

/** What the daemon reports about a tool once it runs. */
export interface StartedTool {
  readonly name: string;
  readonly state: string;
  readonly why: string | null;
  readonly next: string | null;
}

/** The keys that the started service could not read. */
export function startedNotes(tools: readonly StartedTool[], kind: ServiceManager["kind"]): SourceNote[] {
  return tools
    .filter(({ state }) => state === "key-unavailable" || state === "needs-trust")
    .map(({ name, state, why, next }) => {
      const what = why ?? state;
      return { whose: `tool ${name}`, what, next: restrictionFix(what, kind) ?? next, missing: true };
    });
}

/** What to do about a command that fails because of the unit's restrictions; null: something else is wrong. */
function restrictionFix(reason: string, kind: ServiceManager["kind"]): string | null {
  if (kind !== "systemd") return null;
  if (/SSH_AUTH_SOCK|authentication agent/i.test(reason))
    return `systemctl --user import-environment SSH_AUTH_SOCK at your login, then ${advice.serviceRestart()}`;
  if (!/read-only file system|\bEROFS\b/i.test(reason)) return null;
  const file = /(\/[^\s'"`’:]+)['"`’]?: read-only/i.exec(reason)?.[1];
  const folder = file === undefined ? "the folder it writes to" : file.slice(0, file.lastIndexOf("/"));
  return `let it write there: systemctl --user edit keybearer, with the lines [Service] and ReadWritePaths=${folder}, then ${advice.serviceRestart()}`;
}
