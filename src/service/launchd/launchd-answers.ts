import type { LastExit, ServiceState } from "../manager.ts";

/** What `launchctl print` tells of a job. Its own page warns that the format may change: what is not found is not known. */
export function jobIn(text: string): Omit<ServiceState, "file" | "enabled"> {
  const said = new Map<string, string>();
  for (const line of text.split("\n")) {
    // One tab: what belongs to the job itself. Deeper ones are of its endpoints and its last process.
    const found = /^(?:\t| {4})(\w[\w ]*?) = (.*)$/.exec(line);
    if (found?.[1] !== undefined && !said.has(found[1])) said.set(found[1], found[2] ?? "");
  }
  const state = said.get("state") ?? "unknown";
  const pid = Number(said.get("pid") ?? 0);
  const lastExit = exitIn(said);
  return {
    active: activeIn(state, lastExit),
    words: state,
    pid: pid > 0 ? pid : null,
    since: null,
    restarts: /^\d+$/.test(said.get("runs") ?? "") ? Number(said.get("runs")) : null,
    lastExit,
    said: null,
    inNamespace: null,
  };
}

function activeIn(state: string, lastExit: LastExit | null): ServiceState["active"] {
  if (state === "running") return "running";
  if (state === "spawn scheduled" || state === "spawning" || state === "xpcproxy")
    return hasFailed(lastExit) ? "failed" : "starting";
  return hasFailed(lastExit) ? "failed" : "stopped";
}

function hasFailed(lastExit: LastExit | null): boolean {
  return lastExit !== null && (lastExit.signal !== null || lastExit.code !== 0);
}

/** `78`, on newer systems `78: EX_CONFIG`; `(never exited)`; a signal stands on a line of its own. */
function exitIn(said: ReadonlyMap<string, string>): LastExit | null {
  const signal = said.get("last terminating signal");
  if (signal !== undefined) return { code: null, signal };
  const code = /^(\d+)/.exec(said.get("last exit code") ?? "")?.[1];
  return code === undefined ? null : { code: Number(code), signal: null };
}

/** `"com.keybearer" => disabled`, on older systems `=> true`. What is not listed is not disabled. */
export function isDisabled(text: string, label: string): boolean {
  return text.split("\n").some((line) => {
    const found = /^\s*"([^"]+)" => (\w+)/.exec(line);
    return found?.[1] === label && (found[2] === "disabled" || found[2] === "true");
  });
}

/** The number that launchctl ends with, or names: `Bootstrap failed: 5: Input/output error`. */
export function faultIn(ran: { readonly code: number | null; readonly stderr: string }): number | null {
  const named = /(?:failed|service|error): (\d+):/i.exec(ran.stderr)?.[1];
  return named === undefined ? ran.code : Number(named);
}

/** errno.h and launchd's own numbers. */
export const FAULT = {
  noSuchProcess: 3,
  inputOutput: 5,
  nowInProgress: 36,
  alreadyInProgress: 37,
  notFound: 113,
  disabled: 119,
} as const;
