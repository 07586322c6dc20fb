import type { LastExit, ServiceState } from "../manager.ts";

/** What is asked of systemctl show. */
export const PROPERTIES = [
  "LoadState",
  "ActiveState",
  "SubState",
  "UnitFileState",
  "MainPID",
  "NRestarts",
  "ActiveEnterTimestamp",
  "ExecMainCode",
  "ExecMainStatus",
  "NeedDaemonReload",
  "StatusText",
  "PrivateUsers",
] as const;

/** Lines of NAME=value. */
export function readProperties(text: string): ReadonlyMap<string, string> {
  return new Map(
    text.split("\n").flatMap((line) => {
      const at = line.indexOf("=");
      return at < 1 ? [] : [[line.slice(0, at), line.slice(at + 1)] as const];
    }),
  );
}

export function stateIn(said: ReadonlyMap<string, string>): Omit<ServiceState, "file"> {
  const active = said.get("ActiveState") ?? "inactive";
  const pid = Number(said.get("MainPID") ?? 0);
  return {
    active: activeIn(active, said.get("SubState") ?? ""),
    words: `${active} (${said.get("SubState") ?? "dead"})`,
    pid: pid > 0 ? pid : null,
    since: active === "active" ? timeIn(said.get("ActiveEnterTimestamp") ?? "") : null,
    restarts: /^\d+$/.test(said.get("NRestarts") ?? "") ? Number(said.get("NRestarts")) : null,
    enabled: /^enabled/.test(said.get("UnitFileState") ?? ""),
    lastExit: exitIn(said),
    said: said.get("StatusText") || null,
    // Of a unit that is not loaded the manager says no to everything.
    inNamespace: said.get("LoadState") === "loaded" ? said.get("PrivateUsers") === "yes" : null,
  };
}

function activeIn(active: string, sub: string): ServiceState["active"] {
  if (active === "active" || active === "reloading") return "running";
  // Between two starts it is neither: the manager counts it among those that start.
  if (active === "activating") return sub === "auto-restart" ? "failed" : "starting";
  if (active === "deactivating") return "stopping";
  return active === "failed" ? "failed" : "stopped";
}

/** As printed for TZ=UTC: Sun 2026-11-15 11:25:12 UTC. */
function timeIn(text: string): number | null {
  const found = /(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2}) UTC$/.exec(text);
  const time = found === null ? Number.NaN : Date.parse(`${found[1]}T${found[2]}Z`);
  return Number.isNaN(time) ? null : time;
}

/** ExecMainCode is what waitid(2) calls si_code: 1 exited, 2 killed, 3 killed with a core; 0 has not ended. */
function exitIn(said: ReadonlyMap<string, string>): LastExit | null {
  const how = said.get("ExecMainCode") ?? "0";
  const status = Number(said.get("ExecMainStatus") ?? Number.NaN);
  if (Number.isNaN(status)) return null;
  if (how === "1") return { code: status, signal: null };
  return how === "2" || how === "3" ? { code: null, signal: SIGNALS[status] ?? `signal ${status}` } : null;
}

const SIGNALS: Readonly<Record<number, string>> = {
  ...{ 1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE" },
  ...{ 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM", 31: "SIGSYS" },
};

/** What `systemctl --user show-environment` prints: shell lines, those with odd characters as $'…'. */
export function readEnvironment(text: string): Readonly<Record<string, string>> {
  const found = [...readProperties(text)].map(([name, value]) => [name, unquoted(value)] as const);
  return Object.fromEntries(found);
}

function unquoted(value: string): string {
  const inner = /^\$'(.*)'$/s.exec(value)?.[1];
  if (inner === undefined) return /^"(.*)"$/s.exec(value)?.[1]?.replace(/\\(["\\$`])/g, "$1") ?? value;
  return inner.replace(/\\(?:([abfnrtv\\'"])|x([0-9a-f]{2})|([0-7]{3}))/gi, (_all, letter, hex, octal) => {
    if (letter !== undefined) return ESCAPES[letter] ?? letter;
    return String.fromCharCode(Number.parseInt(hex ?? octal, hex === undefined ? 8 : 16));
  });
}

const ESCAPES: Readonly<Record<string, string>> = {
  ...{ a: "\u0007", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t", v: "\v" },
};
