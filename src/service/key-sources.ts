import { describeSource, type KeySource } from "../config/schema.ts";
import type { KeyState } from "../config/snapshot.ts";
import { shellWord } from "../keys/words.ts";
import type { ServiceSpec } from "./spec.ts";

/** What launchd gives every agent, beside what it was told to. systemd says itself all that it gives. */
const FROM_LOGIN = ["HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "SSH_AUTH_SOCK", "SECURITYSESSIONID"];

export interface Surroundings {
  readonly kind: "systemd" | "launchd";
  /** What the manager says that it gives. */
  readonly given: Readonly<Record<string, string>>;
  readonly shell: Readonly<Record<string, string | undefined>>;
  /** Variables that the unit or the agent clears. */
  readonly cleared: readonly string[];
}

/**
 * The variables a service of this kind sees, so that a source can be tried as it will be read: the manager's own
 * instead of the shell's, and the PATH of the unit.
 */
export function serviceEnvironment(spec: ServiceSpec, around: Surroundings): Record<string, string> {
  const { kind, given, shell, cleared } = around;
  const login = (kind === "launchd" ? FROM_LOGIN : []).flatMap((name) => {
    const value = shell[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  const manager = Object.entries(given).filter(([name]) => !cleared.includes(name));
  const home = spec.home === null ? {} : { KEYBEARER_HOME: spec.home };
  return {
    ...Object.fromEntries(login),
    ...Object.fromEntries(manager),
    ...{ PATH: spec.path, ...home, ...spec.environment },
  };
}

/** One source, read with the variables of the service. */
export interface Tried {
  /** tool codex, the console of main */
  readonly whose: string;
  /** For what is to be typed; null: it is a console's secret, not a tool's key. */
  readonly tool: string | null;
  readonly source: KeySource;
  readonly state: KeyState;
}

/** What a person should know before the service reads it. */
export interface SourceNote {
  readonly whose: string;
  readonly what: string;
  readonly next: string | null;
  /** The service would not have it. */
  readonly missing: boolean;
}

export interface NoteDeps {
  readonly kind: "systemd" | "launchd";
  readonly shell: NodeJS.ProcessEnv;
  /** Commands were run as confined as the unit confines them. Default false. */
  readonly confined?: boolean;
}

export function sourceNotes(tried: readonly Tried[], deps: NoteDeps): SourceNote[] {
  return tried.flatMap((each) => {
    const note = noteOf(each, deps);
    return note === null ? [] : [{ whose: each.whose, ...note }];
  });
}

/** What the daemon says of a tool once it runs. */
export interface StartedTool {
  readonly name: string;
  readonly state: string;
  readonly why: string | null;
  readonly next: string | null;
}

/** The same, as the started service has found them itself. */
export function startedNotes(tools: readonly StartedTool[], kind: NoteDeps["kind"]): SourceNote[] {
  return tools
    .filter(({ state }) => state === "key-unavailable" || state === "needs-trust")
    .map(({ name, state, why, next }) => {
      const what = why ?? state;
      return { whose: `tool ${name}`, what, next: confinedNext(what, kind) ?? next, missing: true };
    });
}

type Note = Omit<SourceNote, "whose">;

function noteOf({ source, state, tool }: Tried, deps: NoteDeps): Note | null {
  const keep = tool === null ? null : `keybearer tools rotate ${shellWord(tool)}`;
  if (state.state === "needs-trust") {
    const what = `${state.what} waits for your yes: ${state.from} → ${state.to}`;
    return { what, next: tool === null ? null : `keybearer trust ${shellWord(tool)}`, missing: true };
  }
  if (source.kind === "env") return variableNote(source.name, state, { ...deps, tool });
  if (state.state === "ready") return null;
  const where = describeSource(source);
  const heard = `${where}: ${state.reason}`;
  if (source.kind === "command") {
    const how = deps.confined
      ? "no terminal, no window, its PATH, its hardening"
      : "no terminal, no window, its PATH";
    const what = `${where}, run as the service runs it (${how}): ${state.reason}`;
    return { what, next: confinedNext(state.reason, deps.kind) ?? keep, missing: true };
  }
  if (source.kind === "keychain") {
    const what = `${heard}. a service that starts before the keychain is unlocked finds it locked`;
    return { what, next: keep, missing: true };
  }
  return { what: heard, next: keep, missing: true };
}

/** What to do about a command that fails for the unit's sake alone; null: it does not look like that. */
function confinedNext(said: string, kind: NoteDeps["kind"]): string | null {
  if (kind !== "systemd") return null;
  if (/SSH_AUTH_SOCK|authentication agent/i.test(said))
    return "systemctl --user import-environment SSH_AUTH_SOCK at your login, then keybearer service restart";
  if (!/read-only file system|\bEROFS\b/i.test(said)) return null;
  const file = /(\/[^\s'"`’:]+)['"`’]?: read-only/i.exec(said)?.[1];
  const folder = file === undefined ? "the folder it writes to" : file.slice(0, file.lastIndexOf("/"));
  return `let it write there: systemctl --user edit keybearer, with the lines [Service] and ReadWritePaths=${folder}, then keybearer service restart`;
}

interface Seen {
  readonly kind: "systemd" | "launchd";
  readonly shell: NodeJS.ProcessEnv;
  readonly tool: string | null;
}

/** A variable of the shell ends with the shell; one that was given to the manager ends with the session. */
function variableNote(name: string, state: KeyState, { kind, shell, tool }: Seen): Note {
  if (state.state === "ready") {
    const manager = kind === "systemd" ? "the user manager" : "launchd";
    const what = `env:${name} is set in ${manager} now, and may be gone after the next login`;
    return { what, next: toKeep(tool, name, false), missing: false };
  }
  const set = (shell[name] ?? "") !== "";
  const why = set ? "is set in this shell, which a service does not see" : "is not set for a service";
  return { what: `env:${name} ${why}`, next: toKeep(tool, name, set), missing: true };
}

/** From the variable straight into the store: the key is not typed, and is no argument. */
function toKeep(tool: string | null, name: string, set: boolean): string | null {
  if (tool === null) return "keybearer mirror login";
  const rotate = `keybearer tools rotate ${shellWord(tool)}`;
  return set ? `printenv ${name} | ${rotate} --key-stdin` : rotate;
}
