import { readFileSync, realpathSync } from "node:fs";
import { constants } from "node:os";
import { join } from "node:path";
import { advice } from "../core/advice.ts";
import { errorMessage } from "../core/errors.ts";
import { writePrivateFile } from "../core/private-file.ts";
import { packageFolder } from "../core/version.ts";
import {
  type Availability,
  availability,
  type CommandResult,
  changeFailed,
  findServiceFile,
  findStopSeconds,
  firstLine,
  type LastExit,
  type LogRequest,
  notWritten,
  type Plan,
  type Result,
  type RunCommand,
  removeServiceFile,
  type ServiceFile,
  type ServiceState,
  type Step,
} from "./service.ts";
import type { ServiceSpec } from "./spec.ts";
import { readUnit, renderUnit, type Specifiers, unsetVariables } from "./unit.ts";

const UNIT = "keybearer.service";
const USER_UNITS = "/.config/systemd/user";

/** A query is answered at once. A manager that hangs must not hang the command. */
const QUERY_MS = 10_000;
/** How long a command may take, beyond the time in which the service stops. */
const CHANGE_MS = 70_000;

const OWN_HOME = "log in as the user the service is for, with that user's HOME, and try again";
const BY_HAND = `without it, ${advice.start()} runs keybearer in the background, and works in your shell's startup file, too`;

interface SystemdOptions {
  readonly run: RunCommand;
  readonly home: string;
  readonly env: NodeJS.ProcessEnv;
  readonly uid: number;
}

/** The user's systemd manager. */
export class Systemd {
  readonly kind = "systemd";
  readonly file: string;
  readonly #run: RunCommand;
  readonly #uid: number;
  readonly #specifiers: Specifiers;
  readonly #folder: UnitFolder;

  private constructor({ run, home, env, uid }: SystemdOptions, folder: UnitFolder) {
    this.file = join(folder.path, UNIT);
    this.#run = run;
    this.#uid = uid;
    const runtime = env.XDG_RUNTIME_DIR?.startsWith("/") ? env.XDG_RUNTIME_DIR : `/run/user/${uid}`;
    this.#specifiers = { home, runtime };
    this.#folder = folder;
  }

  static async open(options: SystemdOptions): Promise<Systemd> {
    return new Systemd(options, await findUnitFolder(options));
  }

  /** Judged by its answer alone: containers and root may have a user manager, and a desktop may have none. */
  async available(): Promise<Availability> {
    const answer = availability(await this.#query("show-environment"), {
      program: "systemctl",
      silent: "systemctl --user does not answer here",
      next: BY_HAND,
    });
    const { problem } = this.#folder;
    return answer.ok && problem !== null ? { ok: false, problem, next: OWN_HOME } : answer;
  }

  /** Asks only the file system. */
  found(): Promise<ServiceFile> {
    return findServiceFile(this.file, (text) => readUnit(text, this.#specifiers));
  }

  async state(): Promise<ServiceState> {
    return { file: await this.found(), ...readState(await this.#properties()) };
  }

  /** What an installation writes and runs now. */
  async planInstall(spec: ServiceSpec): Promise<Plan> {
    const file = await this.found();
    if (file.kind === "foreign") return { ok: false, problem: file.problem, next: file.next };
    const properties = await this.#properties();
    const { active } = readState(properties);
    const text = renderUnit(unitTemplate(), spec);
    const same = file.kind === "ours" && file.text === text;
    // After an installation that was interrupted, the file is right but the manager has not read it.
    const changed = !same || properties.get("NeedDaemonReload") === "yes";
    const restarts = changed && (active === "running" || active === "starting");
    const steps: Step[] = same ? [] : [{ kind: "write", file: this.file, text }];
    if (changed) steps.push(systemctl("daemon-reload"));
    // systemd does not start a unit that failed too often until its failures are reset.
    if (active === "failed") steps.push(systemctl("reset-failed", UNIT));
    steps.push({ ...systemctl("enable", "--now", UNIT), must: "started" });
    if (restarts) steps.push({ ...systemctl("restart", UNIT), must: "restarted" });
    const before = file.kind === "none" ? "none" : same ? "same" : "different";
    return { ok: true, steps, before, restarts };
  }

  /** Without steps if there is nothing to remove. systemd may still run a unit whose file is gone. */
  async planRemoval(): Promise<Plan> {
    const { file, active } = await this.state();
    if (file.kind === "foreign") return { ok: false, problem: file.problem, next: file.next };
    const before = file.kind === "none" ? "none" : "same";
    if (file.kind === "none" && active === "stopped") return { ok: true, steps: [], before, restarts: false };
    const steps: Step[] = [{ ...systemctl("stop", UNIT), must: "stopped" }, systemctl("disable", UNIT)];
    if (file.kind === "ours") steps.push({ kind: "remove", file: this.file });
    steps.push(systemctl("daemon-reload"), systemctl("reset-failed", UNIT));
    return { ok: true, steps, before, restarts: false };
  }

  /** Stops at the first step that fails and must not. */
  async apply(steps: readonly Step[]): Promise<Result> {
    const timeoutMs = CHANGE_MS + findStopSeconds(await this.found()) * 1000;
    for (const step of steps) {
      if (step.kind === "write") {
        try {
          await writePrivateFile(step.file, step.text);
        } catch (error) {
          return notWritten(step.file, errorMessage(error));
        }
      } else if (step.kind === "remove") {
        const removed = await removeServiceFile(step.file);
        if (!removed.ok) return removed;
      } else {
        const result = await this.#run(step.argv, { timeoutMs });
        if (step.must !== undefined && !(await this.#succeeded(result, step.must)))
          return changeFailed(result, step.must);
      }
    }
    return { ok: true };
  }

  /** Stopping a unit that is not loaded fails, but leaves it stopped. */
  async #succeeded(result: CommandResult, must: string): Promise<boolean> {
    if (must !== "stopped") return result.code === 0;
    const { active } = readState(await this.#properties());
    return active === "stopped" || active === "failed";
  }

  stop(): Promise<Result> {
    return this.apply([{ ...systemctl("stop", UNIT), must: "stopped" }]);
  }

  async restart(): Promise<Result> {
    const { active } = readState(await this.#properties());
    const steps: Step[] = active === "failed" ? [systemctl("reset-failed", UNIT)] : [];
    return this.apply([...steps, { ...systemctl("restart", UNIT), must: "restarted" }]);
  }

  /**
   * Without --user: where the journal is not split by user (root, or a journal in memory), the lines of user units are in the
   * system journal, and --user would not show them.
   */
  async logs({ follow, lines, onLine, signal }: LogRequest): Promise<Result> {
    let count = 0;
    const argv = ["journalctl", "--quiet", `--user-unit=${UNIT}`, "--output=cat", `--lines=${lines}`];
    const result = await this.#run([...argv, follow ? "--follow" : "--no-pager"], {
      timeoutMs: follow ? 0 : QUERY_MS,
      signal,
      onLine: (line) => {
        count += 1;
        onLine(line);
      },
    });
    if (result.missing)
      return { ok: false, problem: "there is no journalctl here, so the log cannot be shown", next: null };
    // journalctl exits with 0 even if there is no journal.
    if (count > 0 || signal?.aborted || lines === 0) return { ok: true };
    const message = firstLine(result.stderr);
    const problem = `the journal has nothing about ${UNIT}${message === "" ? "" : ` (${message})`}: it was not started yet, or no journal is kept here, or you may not read it`;
    return { ok: false, problem, next: null };
  }

  /** What the manager gives its services. May contain secrets: never print it. */
  async environment(): Promise<Readonly<Record<string, string>>> {
    return readEnvironment((await this.#query("show-environment")).stdout);
  }

  unsetVariables(): readonly string[] {
    return unsetVariables(unitTemplate());
  }

  /** What keeps the service from running before a login; null: nothing, or it is unknown. */
  async lingerHint(): Promise<string | null> {
    const argv = ["loginctl", "show-user", String(this.#uid), "--property=Linger"];
    const { stdout } = await this.#run(argv, { timeoutMs: QUERY_MS });
    if (readProperties(stdout).get("Linger") !== "no") return null;
    return "it starts at your login and stops when you log out everywhere. to run it without a login: loginctl enable-linger";
  }

  #query(...args: readonly string[]): Promise<CommandResult> {
    return this.#run(["systemctl", "--user", ...args], { timeoutMs: QUERY_MS });
  }

  async #properties(): Promise<ReadonlyMap<string, string>> {
    return readProperties((await this.#query("show", UNIT, `--property=${PROPERTIES.join(",")}`)).stdout);
  }
}

function systemctl(...args: readonly string[]): Step & { readonly kind: "run" } {
  return { kind: "run", argv: ["systemctl", "--user", ...args] };
}

function unitTemplate(): string {
  return readFileSync(new URL("service/keybearer.service", packageFolder()), "utf8");
}

interface UnitFolder {
  readonly path: string;
  /** Why the manager would never find a unit there; null: it would, or it did not say. */
  readonly problem: string | null;
}

/**
 * The manager looks below its own HOME or XDG_CONFIG_HOME, which may differ from the shell's: after su, with sudo, or with a
 * HOME that was set for one command.
 */
async function findUnitFolder({ run, home, env }: SystemdOptions): Promise<UnitFolder> {
  const usual = `${home}${USER_UNITS}`;
  const own = env.XDG_CONFIG_HOME?.startsWith("/") ? join(env.XDG_CONFIG_HOME, "systemd", "user") : usual;
  const shown = await run(["systemctl", "--user", "show", "--property=UnitPath"], { timeoutMs: 3000 });
  const known = (readProperties(shown.stdout).get("UnitPath") ?? "").split(" ").filter((path) => path !== "");
  const path = known.includes(own) ? own : usual;
  // systemctl quotes some paths, and then the list cannot be split at spaces.
  if (known.length === 0 || known.includes(path) || !/^[\w/.@+-]+$/.test(path))
    return { path, problem: null };
  const managerHome = known.find((folder) => folder.endsWith(USER_UNITS))?.slice(0, -USER_UNITS.length);
  if (managerHome !== undefined && isSameFolder(managerHome, home)) return { path, problem: null };
  const where = managerHome === undefined ? `only in ${known[0]} and the like` : `below ${managerHome}`;
  const problem = `HOME is ${home} here, but the user manager looks for units ${where}, and would never find ${path}`;
  return { path, problem };
}

function isSameFolder(one: string, other: string): boolean {
  try {
    return realpathSync(one) === realpathSync(other);
  } catch {
    return false;
  }
}

const PROPERTIES = [
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
];

/** Lines of NAME=value. */
function readProperties(text: string): ReadonlyMap<string, string> {
  const properties = new Map<string, string>();
  for (const line of text.split("\n")) {
    const equals = line.indexOf("=");
    if (equals > 0) properties.set(line.slice(0, equals), line.slice(equals + 1));
  }
  return properties;
}

function readState(properties: ReadonlyMap<string, string>): Omit<ServiceState, "file"> {
  const active = properties.get("ActiveState") ?? "inactive";
  const sub = properties.get("SubState") ?? "dead";
  const pid = Number(properties.get("MainPID") ?? 0);
  const restarts = properties.get("NRestarts") ?? "";
  return {
    active: readActive(active, sub),
    description: `${active} (${sub})`,
    pid: pid > 0 ? pid : null,
    since: active === "active" ? parseTime(properties.get("ActiveEnterTimestamp") ?? "") : null,
    restarts: /^\d+$/.test(restarts) ? Number(restarts) : null,
    enabled: /^enabled/.test(properties.get("UnitFileState") ?? ""),
    lastExit: readLastExit(properties),
    statusText: properties.get("StatusText") || null,
    // For a unit that is not loaded, the manager answers no to everything.
    inNamespace: properties.get("LoadState") === "loaded" ? properties.get("PrivateUsers") === "yes" : null,
  };
}

function readActive(active: string, sub: string): ServiceState["active"] {
  if (active === "active" || active === "reloading") return "running";
  // Between two attempts, systemd calls a failing unit "activating".
  if (active === "activating") return sub === "auto-restart" ? "failed" : "starting";
  if (active === "deactivating") return "stopping";
  return active === "failed" ? "failed" : "stopped";
}

/** As printed for TZ=UTC: Sun 2026-11-15 11:25:12 UTC. */
function parseTime(text: string): number | null {
  const found = /(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2}) UTC$/.exec(text);
  const time = found === null ? Number.NaN : Date.parse(`${found[1]}T${found[2]}Z`);
  return Number.isNaN(time) ? null : time;
}

/** ExecMainCode is si_code of waitid(2): 1 exited, 2 killed, 3 killed with a core dump, 0 still running. */
function readLastExit(properties: ReadonlyMap<string, string>): LastExit | null {
  const how = properties.get("ExecMainCode");
  const status = Number(properties.get("ExecMainStatus") ?? Number.NaN);
  if (Number.isNaN(status)) return null;
  if (how === "1") return { code: status, signal: null };
  if (how !== "2" && how !== "3") return null;
  const [signal] = Object.entries(constants.signals).find(([, number]) => number === status) ?? [];
  return { code: null, signal: signal ?? `signal ${status}` };
}

/** The output of `systemctl --user show-environment`: NAME=value as a shell reads it, odd characters in $'…'. */
export function readEnvironment(text: string): Readonly<Record<string, string>> {
  const variables: Record<string, string> = {};
  for (const [name, value] of readProperties(text)) variables[name] = unquote(value);
  return variables;
}

function unquote(value: string): string {
  const inner = /^\$'(.*)'$/s.exec(value)?.[1];
  if (inner === undefined) return /^"(.*)"$/s.exec(value)?.[1]?.replace(/\\(["\\$`])/g, "$1") ?? value;
  return inner.replace(/\\(?:([abfnrtv\\'"])|x([0-9a-f]{2})|([0-7]{3}))/gi, (_all, letter, hex, octal) => {
    if (letter !== undefined) return ESCAPES[letter] ?? letter;
    return String.fromCharCode(Number.parseInt(hex ?? octal, hex === undefined ? 8 : 16));
  });
}

const ESCAPES: Readonly<Record<string, string>> = {
  a: "\u0007",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};
