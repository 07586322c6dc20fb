import { join } from "node:path";
import { errorMessage } from "../../core/errors.ts";
import { complaint, inTheWay, notDone, notWritten } from "../answer-words.ts";
import type { Ran, RunCommand } from "../command-runner.ts";
import type { Availability, Done, FoundFile, Installed, LogRequest, ServiceManager } from "../manager.ts";
import type { ServiceFiles } from "../service-file.ts";
import type { ServiceSpec } from "../spec.ts";
import { PROPERTIES, readEnvironment, readProperties, stateIn } from "./systemd-answers.ts";
import {
  type InstallStep,
  installSteps,
  type Look,
  planOf,
  removalPlan,
  systemctl,
  UNIT,
} from "./systemd-steps.ts";
import { readUnit, type Specifiers, unitText } from "./unit.ts";
import type { UnitFolder } from "./unit-folder.ts";

export interface SystemdDeps {
  readonly run: RunCommand;
  readonly files: ServiceFiles;
  /** Where the user manager looks for units, and why it would not look there, if it does not. */
  readonly where: UnitFolder;
  /** service/keybearer.service. */
  readonly template: string;
  readonly uid: number;
  /** What %h and %t stand for in a unit that was copied by hand. */
  readonly specifiers: Specifiers;
}

/** An answer should come at once; a manager that hangs must not hold the person. */
const ANSWER_MS = 10_000;
/** A drain of 10 s, a stop that is given up after more, and a start. */
const CHANGE_MS = 90_000;

export function createSystemd(deps: SystemdDeps): ServiceManager {
  const { run, files, where, template, uid } = deps;
  const file = join(where.folder, UNIT);
  const find = () => files.find(file, (text) => readUnit(text, deps.specifiers));
  const ask = (...words: readonly string[]) => run(systemctl(...words), { timeoutMs: ANSWER_MS });
  const change = (...words: readonly string[]) => run(systemctl(...words), { timeoutMs: CHANGE_MS });
  const properties = async () =>
    readProperties((await ask("show", UNIT, `--property=${PROPERTIES.join(",")}`)).stdout);

  async function look(): Promise<Look> {
    const [found, said] = await Promise.all([find(), properties()]);
    return { state: { file: found, ...stateIn(said) }, unread: said.get("NeedDaemonReload") === "yes" };
  }

  async function install(spec: ServiceSpec): Promise<Installed> {
    const text = unitText(template, spec);
    const before = await look();
    const old = before.state.file;
    if (old.kind === "foreign") return inTheWay(file, old.why);
    const steps = installSteps(before, text);
    const failed = await follow(steps, { change, write: () => files.write(file, text), file });
    if (failed !== null) return failed;
    const same = steps[0]?.kind !== "write";
    const restarted = steps.some((step) => step.kind === "run" && step.must === "restarted");
    return { ok: true, before: old.kind === "none" ? "none" : same ? "same" : "different", restarted };
  }

  return {
    kind: "systemd",
    file,
    async plan(spec) {
      const before = await look();
      const { file: old } = before.state;
      if (old.kind === "foreign") return inTheWay(file, old.why);
      const text = unitText(template, spec);
      return { ok: true, steps: planOf(installSteps(before, text), file, text) };
    },
    async planRemoval() {
      const { file: old, active } = (await look()).state;
      if (old.kind === "foreign") return inTheWay(file, old.why);
      return { ok: true, steps: removalPlan(old, active, file) };
    },
    async available() {
      const answer = availabilityIn(await ask("show-environment"));
      return answer.ok && where.fault !== null ? { ok: false, why: where.fault, byHand: OWN_HOME } : answer;
    },
    found: find,
    environment: async () => readEnvironment((await ask("show-environment")).stdout),
    state: async () => (await look()).state,
    install,
    uninstall: () => uninstall({ file, files, find, change, properties }),
    async restart() {
      if ((await look()).state.active === "failed") await change("reset-failed", UNIT);
      const ran = await change("restart", UNIT);
      return ran.code === 0 ? { ok: true } : { ok: false, why: notDone(ran, "restarted") };
    },
    logs: (request) => journal(run, request),
    lingerHint: () => lingerHint(run, uid),
  };
}

interface Removal {
  readonly file: string;
  readonly files: ServiceFiles;
  find(): Promise<FoundFile>;
  change(...words: readonly string[]): Promise<Ran>;
  properties(): Promise<ReadonlyMap<string, string>>;
}

async function uninstall({ file, files, find, change, properties }: Removal): Promise<Done> {
  const found = await find();
  if (found.kind === "foreign") return inTheWay(file, found.why);
  // Stopping waits for the drain. What is not loaded, not enabled or never failed is as it should be.
  const stopped = await change("stop", UNIT);
  const { active } = stateIn(await properties());
  if (active !== "stopped" && active !== "failed") return { ok: false, why: notDone(stopped, "stopped") };
  await change("disable", UNIT);
  const fault = await files.remove(file).then(() => null, errorMessage);
  if (fault !== null) return { ok: false, why: `${file} cannot be removed: ${fault}` };
  await change("daemon-reload");
  await change("reset-failed", UNIT);
  return { ok: true };
}

interface Hands {
  readonly file: string;
  write(): Promise<void>;
  change(...words: readonly string[]): Promise<Ran>;
}

/** Up to the first that must not fail and does. */
async function follow(steps: readonly InstallStep[], { file, write, change }: Hands): Promise<Failed | null> {
  for (const step of steps) {
    if (step.kind === "write") {
      const fault = await write().then(() => null, errorMessage);
      if (fault !== null) return notWritten(file, fault);
      continue;
    }
    const ran = await change(...step.words);
    if (ran.code !== 0 && step.must !== undefined)
      return { ok: false, why: notDone(ran, step.must), next: null };
  }
  return null;
}

type Failed = Installed & { readonly ok: false };

async function lingerHint(run: RunCommand, uid: number): Promise<string | null> {
  const argv = ["loginctl", "show-user", String(uid), "--property=Linger"];
  const said = await run(argv, { timeoutMs: ANSWER_MS });
  if (readProperties(said.stdout).get("Linger") !== "no") return null;
  return "it starts at your login and stops when you log out for good. to have it run without a login: loginctl enable-linger";
}

const OWN_HOME = "log in as the person the service is for, with that person's HOME, and try again";
const BY_HAND =
  "without it, start it from your shell's start file or a supervisor of your own: keybearer run, which stays in the foreground, reloads on SIGHUP and stops cleanly on SIGTERM";

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
