import { describeSource, type KeySource, type KeyState } from "../key-source.ts";
import { shellWord } from "../keys/words.ts";
import type { ServiceSpec } from "./spec.ts";

/** What the manager itself gives every service, beside what it was told to. */
const FROM_LOGIN = ["HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "SSH_AUTH_SOCK", "SECURITYSESSIONID"];
/** Cleared by the unit and the agent. */
const CLEARED = /^(?:NODE_(?!EXTRA_CA_CERTS$)|DEBUG$|FORCE_FETCH_PATH$|LD_PRELOAD$|LD_AUDIT$)/;

/**
 * The variables a service of this kind sees, so that a source can be tried as it will be read: the manager's own
 * instead of the shell's, and the PATH of the unit.
 */
export function serviceEnvironment(
  spec: ServiceSpec,
  given: Readonly<Record<string, string>>,
  shell: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const login = FROM_LOGIN.flatMap((name) => {
    const value = shell[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  const manager = Object.entries(given).filter(([name]) => !CLEARED.test(name));
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

export function sourceNotes(
  tried: readonly Tried[],
  { kind, shell }: { readonly kind: "systemd" | "launchd"; readonly shell: NodeJS.ProcessEnv },
): SourceNote[] {
  return tried.flatMap((each) => {
    const note = noteOf(each, kind, shell);
    return note === null ? [] : [{ whose: each.whose, ...note }];
  });
}

type Note = Omit<SourceNote, "whose">;

function noteOf(
  { source, state, tool }: Tried,
  kind: "systemd" | "launchd",
  shell: NodeJS.ProcessEnv,
): Note | null {
  const keep = tool === null ? null : `keybearer tools rotate ${shellWord(tool)}`;
  if (state.state === "needs-trust") {
    const what = `${state.what} waits for your yes: ${state.from} → ${state.to}`;
    return { what, next: tool === null ? null : `keybearer trust ${shellWord(tool)}`, missing: true };
  }
  if (source.kind === "env") return variableNote(source.name, state, { kind, shell, tool });
  if (state.state === "ready") return null;
  const where = describeSource(source);
  const heard = `${where}: ${state.reason}`;
  if (source.kind === "command") {
    const what = `${where}, run as the service runs it (no terminal, no window, its PATH): ${state.reason}`;
    return { what, next: keep, missing: true };
  }
  if (source.kind === "keychain") {
    const what = `${heard}. a service that starts before the keychain is unlocked finds it locked`;
    return { what, next: keep, missing: true };
  }
  return { what: heard, next: keep, missing: true };
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
