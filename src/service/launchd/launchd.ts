import { dirname, join } from "node:path";
import { errorMessage } from "../../core/errors.ts";
import { complaint, inTheWay, notWritten } from "../answer-words.ts";
import type { Ran, RunCommand } from "../command-runner.ts";
import type {
  Availability,
  Done,
  Installed,
  LogRequest,
  ServiceManager,
  ServiceState,
  Step,
} from "../manager.ts";
import type { ServiceFiles } from "../service-file.ts";
import type { ServiceSpec } from "../spec.ts";
import { type Job, Launchctl } from "./launchctl.ts";
import { plistText, readPlist } from "./plist.ts";

const LABEL = "com.keybearer";

export interface LaunchdDeps {
  readonly run: RunCommand;
  readonly files: ServiceFiles;
  readonly home: string;
  readonly uid: number;
  /** service/com.keybearer.plist. */
  readonly template: string;
  /** Where the agent writes what it says. */
  readonly logFile: string;
  /** See Launchctl. */
  readonly looks?: number;
  readonly betweenMs?: number;
}

export function createLaunchd(deps: LaunchdDeps): ServiceManager {
  const { run, files, template, uid, looks, betweenMs } = deps;
  const file = join(deps.home, "Library", "LaunchAgents", `${LABEL}.plist`);
  const launchctl = new Launchctl({ run, uid, label: LABEL, looks, betweenMs });
  const { domain, job } = launchctl;

  async function uninstall(): Promise<Done> {
    const found = await files.find(file, readPlist);
    if (found.kind === "foreign") return inTheWay(file, found.why);
    const unloaded = await launchctl.unload();
    if (!unloaded.ok) return unloaded;
    const fault = await files.remove(file).then(() => null, errorMessage);
    return fault === null ? { ok: true } : { ok: false, why: `${file} cannot be removed: ${fault}` };
  }

  async function restart(): Promise<Done> {
    const there = await launchctl.loaded();
    const ready =
      there === null
        ? await launchctl.load(file)
        : there.pid === null
          ? { ok: true as const }
          : await launchctl.drain(there.pid);
    return ready.ok ? launchctl.start() : ready;
  }

  return {
    kind: "launchd",
    file,
    async plan(spec) {
      const [old, there] = [await files.find(file, readPlist), await launchctl.loaded()];
      if (old.kind === "foreign") return inTheWay(file, old.why);
      const text = plistText(template, spec);
      const same = old.kind === "ours" && old.text === text;
      const say = (...words: readonly string[]) => ({ kind: "run" as const, argv: ["launchctl", ...words] });
      const steps: Step[] = same || there === null ? [] : [say("bootout", job)];
      if (!same) steps.push({ kind: "write", file, text });
      steps.push(say("enable", job));
      if (!same || there === null) steps.push(say("bootstrap", domain, file));
      return { ok: true, steps: [...steps, say("kickstart", job)] };
    },
    async planRemoval() {
      const [old, there] = [await files.find(file, readPlist), await launchctl.loaded()];
      if (old.kind === "foreign") return inTheWay(file, old.why);
      const steps: Step[] = there === null ? [] : [{ kind: "run", argv: ["launchctl", "bootout", job] }];
      return { ok: true, steps: old.kind === "none" ? steps : [...steps, { kind: "remove", file }] };
    },
    available: async () => availabilityIn(await launchctl.say("print", domain)),
    found: () => files.find(file, readPlist),
    environment: (names) => variables(launchctl, names),
    state: () => stateOf(launchctl, file, files),
    install: (spec) => install(launchctl, file, { spec, files, text: plistText(template, spec) }),
    ...{ uninstall, restart },
    logs: (request) => logFileLines(run, deps.logFile, request),
    lingerHint: async () => null,
  };
}

const NOT_LOADED: Job = {
  ...{ active: "stopped", words: "not loaded", pid: null, since: null, restarts: null, lastExit: null },
  ...{ said: null, inNamespace: null },
};

async function stateOf(launchctl: Launchctl, file: string, files: ServiceFiles): Promise<ServiceState> {
  const found = await files.find(file, readPlist);
  const there = await launchctl.loaded();
  const enabled = found.kind === "ours" && !(await launchctl.disabled());
  return { file: found, enabled, ...(there ?? NOT_LOADED) };
}

interface Wanted {
  readonly spec: ServiceSpec;
  readonly text: string;
  readonly files: ServiceFiles;
}

/**
 * launchd knows a job as it was loaded: a new text needs it taken out and put in again. Out before the new file takes
 * its place: cut off anywhere, no old job is left running beside a file that the next installation would find in order.
 */
async function install(launchctl: Launchctl, file: string, wanted: Wanted): Promise<Installed> {
  const { spec, text, files } = wanted;
  const old = await files.find(file, readPlist);
  if (old.kind === "foreign") return inTheWay(file, old.why);
  const same = old.kind === "ours" && old.text === text;
  // launchd makes no folder for the log, and without it does not start the job.
  const staged = await files
    .makeFolder(dirname(spec.logFile))
    .then(() => (same ? null : files.stage(file, text)))
    .catch((error: unknown) => errorMessage(error));
  if (typeof staged === "string") return notWritten(file, staged);
  const there = await launchctl.loaded();
  const anew = there !== null && !same;
  if (anew) {
    const unloaded = await launchctl.unload();
    if (!unloaded.ok) {
      await staged?.drop();
      return { ...unloaded, next: null };
    }
  }
  const unput = (await staged?.put().then(() => null, errorMessage)) ?? null;
  const done = await startNew(launchctl, file, there === null || anew ? "load" : "as it is");
  if (unput !== null) return notWritten(file, unput);
  if (!done.ok) return { ...done, next: null };
  const before = old.kind === "none" ? "none" : same ? "same" : "different";
  return { ok: true, before, restarted: anew && there.pid !== null };
}

async function startNew(launchctl: Launchctl, file: string, how: "load" | "as it is"): Promise<Done> {
  // Somebody may have disabled it once, and launchd remembers that beyond the file: then it would not load.
  await launchctl.say("enable", launchctl.job);
  if (how === "load") {
    const loaded = await launchctl.load(file);
    if (!loaded.ok) return loaded;
  }
  return launchctl.start();
}

/** An agent sees next to nothing of what a shell has, but what was set by `launchctl setenv`. */
async function variables(launchctl: Launchctl, names: readonly string[]): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const name of names) {
    const ran = await launchctl.say("getenv", name);
    const value = ran.stdout.replace(/\n$/, "");
    if (ran.code === 0 && value !== "") found[name] = value;
  }
  return found;
}

const BY_HAND =
  "without it, log in at the Mac itself and try again there, or start it in a terminal: keybearer run, which stays in the foreground, reloads on SIGHUP and stops cleanly on SIGTERM";

function availabilityIn(ran: Ran): Availability {
  if (ran.missing) return { ok: false, why: "there is no launchctl here", byHand: BY_HAND };
  if (ran.code === 0) return { ok: true };
  const said = ran.code === null ? "it did not answer in time" : complaint(ran.stderr || ran.stdout);
  return { ok: false, why: `launchd has no session of yours that answers: ${said}`, byHand: BY_HAND };
}

async function logFileLines(
  run: RunCommand,
  file: string,
  { follow, lines, onLine, signal }: LogRequest,
): Promise<Done> {
  // -F and not -f: a log that was moved away is begun anew under its name.
  const argv = ["tail", "-n", String(lines), ...(follow ? ["-F"] : []), file];
  const ran = await run(argv, {
    timeoutMs: follow ? 0 : 10_000,
    onLine,
    ...(signal === undefined ? {} : { signal }),
  });
  if (ran.code === 0 || signal?.aborted) return { ok: true };
  return { ok: false, why: `the log ${file} cannot be read: ${complaint(ran.stderr)}` };
}
