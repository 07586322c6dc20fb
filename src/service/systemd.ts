import { join } from "node:path";
import { reason } from "../reason.ts";
import { complaint, inTheWay, notDone } from "./answer-words.ts";
import type { Ran, RunCommand } from "./command-runner.ts";
import type { Availability, Done, Installed, LogRequest, ServiceManager, ServiceState } from "./manager.ts";
import type { ServiceFiles } from "./service-file.ts";
import type { ServiceSpec } from "./spec.ts";
import { PROPERTIES, readEnvironment, readProperties, stateIn } from "./systemd-answers.ts";
import { readUnit, unitText } from "./unit.ts";

export const UNIT = "keybearer.service";

export interface SystemdMeans {
  readonly run: RunCommand;
  readonly files: ServiceFiles;
  /** Where the user manager looks for units. */
  readonly folder: string;
  /** service/keybearer.service. */
  readonly template: string;
  readonly uid: number;
}

/** An answer should come at once; a manager that hangs must not hold the person. */
const ANSWER_MS = 10_000;
/** A drain of 10 s, a stop that is given up after more, and a start. */
const CHANGE_MS = 90_000;

/**
 * Where the user manager looks: in its own XDG_CONFIG_HOME, which need not be the shell's. Without an answer, where it
 * looks unless told otherwise.
 */
export async function unitFolder(
  run: RunCommand,
  { home, configHome }: { readonly home: string; readonly configHome: string | undefined },
): Promise<string> {
  const usual = join(home, ".config", "systemd", "user");
  if (!configHome?.startsWith("/")) return usual;
  const said = await run(["systemctl", "--user", "show", "--property=UnitPath"], { timeoutMs: ANSWER_MS });
  const known = (readProperties(said.stdout).get("UnitPath") ?? "").split(" ");
  const own = join(configHome, "systemd", "user");
  return known.includes(own) ? own : usual;
}

export function createSystemd({ run, files, folder, template, uid }: SystemdMeans): ServiceManager {
  const file = join(folder, UNIT);
  const argv = (...words: readonly string[]) => ["systemctl", "--user", ...words];
  const ask = (...words: readonly string[]) => run(argv(...words), { timeoutMs: ANSWER_MS });
  const change = (...words: readonly string[]) => run(argv(...words), { timeoutMs: CHANGE_MS });
  const properties = async () =>
    readProperties((await ask("show", UNIT, `--property=${PROPERTIES.join(",")}`)).stdout);

  async function state(): Promise<ServiceState> {
    const [found, said] = await Promise.all([files.find(file, readUnit), properties()]);
    return { file: found, ...stateIn(said) };
  }

  async function install(spec: ServiceSpec): Promise<Installed> {
    const text = unitText(template, spec);
    const before = await state();
    const old = before.file;
    if (old.kind === "foreign") return inTheWay(file, old.why);
    const same = old.kind === "ours" && old.text === text;
    if (!same) {
      const fault = await files.write(file, text).then(() => null, reason);
      if (fault !== null) return { ok: false, why: `${file} cannot be written: ${fault}`, next: null };
    }
    // Also where only the manager has not seen the file yet, as after an installation that was cut off.
    const unread = (await properties()).get("NeedDaemonReload") === "yes";
    if (!same || unread) await change("daemon-reload");
    // A unit that failed too often is not started again until it is forgiven.
    if (before.active === "failed") await change("reset-failed", UNIT);
    const started = await change("enable", "--now", UNIT);
    if (started.code !== 0) return { ok: false, why: notDone(started, "started"), next: null };
    const restarted = (!same || unread) && (before.active === "running" || before.active === "starting");
    if (restarted) {
      const again = await change("restart", UNIT);
      if (again.code !== 0) return { ok: false, why: notDone(again, "restarted"), next: null };
    }
    return { ok: true, before: old.kind === "none" ? "none" : same ? "same" : "different", restarted };
  }

  async function uninstall(): Promise<Done> {
    const found = await files.find(file, readUnit);
    if (found.kind === "foreign") return inTheWay(file, found.why);
    // Stopping waits for the drain. What is not loaded, not enabled or never failed is as it should be.
    const stopped = await change("stop", UNIT);
    const { active } = stateIn(await properties());
    if (active !== "stopped" && active !== "failed") return { ok: false, why: notDone(stopped, "stopped") };
    await change("disable", UNIT);
    const fault = await files.remove(file).then(() => null, reason);
    if (fault !== null) return { ok: false, why: `${file} cannot be removed: ${fault}` };
    await change("daemon-reload");
    await change("reset-failed", UNIT);
    return { ok: true };
  }

  return {
    kind: "systemd",
    file,
    plan: (spec) => [
      { kind: "write", file, text: unitText(template, spec) },
      { kind: "run", argv: argv("daemon-reload") },
      { kind: "run", argv: argv("enable", "--now", UNIT) },
    ],
    planRemoval: () => [
      { kind: "run", argv: argv("stop", UNIT) },
      { kind: "run", argv: argv("disable", UNIT) },
      { kind: "remove", file },
      { kind: "run", argv: argv("daemon-reload") },
      { kind: "run", argv: argv("reset-failed", UNIT) },
    ],
    available: async () => availabilityIn(await ask("show-environment")),
    found: () => files.find(file, readUnit),
    environment: async () => readEnvironment((await ask("show-environment")).stdout),
    ...{ state, install, uninstall },
    async restart() {
      if ((await state()).active === "failed") await change("reset-failed", UNIT);
      const ran = await change("restart", UNIT);
      return ran.code === 0 ? { ok: true } : { ok: false, why: notDone(ran, "restarted") };
    },
    logs: (request) => journal(run, request),
    lingerHint: () => lingerHint(run, uid),
  };
}

async function lingerHint(run: RunCommand, uid: number): Promise<string | null> {
  const argv = ["loginctl", "show-user", String(uid), "--property=Linger"];
  const said = await run(argv, { timeoutMs: ANSWER_MS });
  if (readProperties(said.stdout).get("Linger") !== "no") return null;
  return "it starts at your login and stops when you log out for good. to have it run without a login: loginctl enable-linger";
}

const BY_HAND =
  "start it from your shell's start file or a supervisor of your own: keybearer run, which stays in the foreground, reloads on SIGHUP and stops cleanly on SIGTERM";

/** Judged by the answer alone: containers and root may have a user manager, and a desktop may have none. */
function availabilityIn(ran: Ran): Availability {
  if (ran.missing) return { ok: false, why: "there is no systemctl here", byHand: BY_HAND };
  if (ran.code === 0) return { ok: true };
  const said = ran.code === null ? "it did not answer in time" : complaint(ran.stderr || ran.stdout);
  return { ok: false, why: `systemctl --user does not answer here: ${said}`, byHand: BY_HAND };
}

/**
 * Without --user on purpose: where the journal is not split by user (root, or one that is kept in memory only), the
 * lines of user units lie in the system's, and --user would show none of them.
 */
async function journal(run: RunCommand, { follow, lines, onLine, signal }: LogRequest): Promise<Done> {
  let told = 0;
  const argv = ["journalctl", "--quiet", `--user-unit=${UNIT}`, "--output=cat", `--lines=${lines}`];
  const ran = await run(follow ? [...argv, "--follow"] : [...argv, "--no-pager"], {
    timeoutMs: follow ? 0 : ANSWER_MS,
    onLine: (line) => {
      told += 1;
      onLine(line);
    },
    ...(signal === undefined ? {} : { signal }),
  });
  if (ran.missing) return { ok: false, why: "there is no journalctl here, so that the log cannot be shown" };
  // It ends with 0 whether or not there is a journal at all.
  if (told > 0 || signal?.aborted || lines === 0) return { ok: true };
  const said = complaint(ran.stderr);
  return {
    ok: false,
    why: `the journal shows nothing of ${UNIT}${said === "" ? "" : ` (${said})`}: it was not started yet, or no journal is kept here, or you may not read it`,
  };
}
