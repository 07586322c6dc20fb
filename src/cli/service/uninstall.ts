import { existsSync, lstatSync, readdirSync, realpathSync, rmdirSync, rmSync } from "node:fs";
import { dirname, isAbsolute, join, relative, sep } from "node:path";
import { isUndoKey, recordedClients } from "../../clients/undo-store.ts";
import { loadConfig } from "../../config/load.ts";
import { type Config, describeSource } from "../../config/schema.ts";
import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import { type Problem, quoteForShell, withNextBelow } from "../../core/display.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { fail, print, printText } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { isInteractive } from "../ui/terminal.ts";
import {
  type ContextOptions,
  describeResult,
  installedContext,
  reachManager,
  type ServiceContext,
  type ServiceManager,
} from "./context.ts";
import { printSteps } from "./install.ts";
import { withDrainProgress } from "./restart.ts";

export interface UninstallOptions {
  readonly purge?: boolean;
  readonly yes?: boolean;
  readonly dryRun?: boolean;
}

const UNCHANGED = "nothing was changed";

/** Keeps config.yaml, keys and the usage log, except with --purge. */
export async function uninstall(options: UninstallOptions, overrides: ContextOptions = {}): Promise<void> {
  const context = await installedContext(overrides);
  const { manager, paths } = context;
  const asks = options.purge === true && !options.yes && !options.dryRun;
  if (asks && !isInteractive())
    return fail(
      `there is no terminal to ask at. if you are sure: ${advice.servicePurgeAnyway()}\n${UNCHANGED}`,
      EXIT.usage,
    );
  const purge = options.purge ? await planPurge(context) : null;
  if (purge !== null && "problem" in purge)
    return fail(
      [withNextBelow({ ...purge, problem: `--purge removes nothing here: ${purge.problem}` }), UNCHANGED],
      EXIT.failed,
    );
  if (options.dryRun) return printDryRun(manager, purge);
  if (asks && purge !== null) {
    printPurge(purge, "to be removed:");
    if (!(await confirm("remove the service and all of this, for good?", "no")))
      return fail(`not removed; ${UNCHANGED}`, EXIT.failed);
  }
  if (manager !== null && !(await removeService(context, manager))) return;
  if (purge === null) return printText(`${paths.config} and the usage log stay (--purge removes them)`);
  await runPurge(context, purge);
}

async function printDryRun(manager: ServiceManager | null, purge: Purge | null): Promise<void> {
  const plan = await manager?.planRemoval();
  if (plan?.ok === false) return fail([withNextBelow(plan), UNCHANGED], EXIT.failed);
  if (plan !== undefined && plan.steps.length > 0) printSteps(plan.steps);
  else printText("the service is not installed");
  if (purge !== null) printPurge(purge, "would remove");
}

/** false: it is still there, and the reason was printed. */
async function removeService(context: ServiceContext, manager: ServiceManager): Promise<boolean> {
  const plan = await manager.planRemoval();
  if (!plan.ok) {
    fail([withNextBelow(plan), UNCHANGED], EXIT.failed);
    return false;
  }
  if (plan.steps.length === 0) {
    printText(`the service is not installed: there is no ${manager.file}`);
    return true;
  }
  if ((await reachManager(context)) === null) return false;
  const { pid } = await manager.state();
  const result = await withDrainProgress(manager.apply(plan.steps), context.paths, pid);
  if (!result.ok) {
    fail(describeResult(result), EXIT.failed);
    return false;
  }
  printText(`the service is stopped, and ${manager.file} is removed`);
  return true;
}

/** What --purge removes and what it leaves. */
interface Purge {
  readonly files: readonly string[];
  /** Removed afterwards if they are empty. */
  readonly folders: readonly string[];
  /** Each with the reason. */
  readonly leaves: readonly string[];
}

/**
 * By name, and never through a link: KEYBEARER_HOME may be a folder that holds other things, and a link may lead anywhere. A
 * problem: nothing may be removed here.
 */
async function planPurge({ paths, shellPaths }: ServiceContext): Promise<Purge | Problem> {
  const elsewhere = otherFiles(paths, shellPaths);
  if (elsewhere !== null) return elsewhere;
  for (const path of [paths.run, paths.state, configFolder(paths)].filter(exists)) {
    const problem = findFolderProblem(path, paths.home);
    if (problem !== null) return { problem: `${path} ${problem}`, next: null };
  }
  const { config } = await loadConfig(paths.config, { home: paths.home, strict: false });
  const found = purgeFolders(paths, config).filter(({ path }) => isFolder(path));
  const folders = found.map(({ path }) => path);
  const files: string[] = [];
  const leaves: string[] = [];
  for (const folder of found)
    for (const name of readdirSync(folder.path)) {
      const path = join(folder.path, name);
      const reason = folders.includes(path) ? null : keepReason(folder, name);
      if (reason !== null) leaves.push(`${path}: ${reason}`);
      else if (!folders.includes(path)) files.push(path);
    }
  if (exists(paths.config) && !folders.includes(dirname(paths.config)))
    leaves.push(`${paths.config}: it is outside of keybearer's folder`);
  return { files, folders, leaves: [...leaves, ...keychainEntries(config)] };
}

/** What is removed must be what this shell sees. Otherwise it is unclear whose data is meant, and this is the reason. */
function otherFiles(paths: Paths, shell: Paths): Problem | null {
  const sameData = paths.state === shell.state && paths.run === shell.run;
  const sameConfig = paths.config === shell.config || !existsSync(shell.config);
  if (sameData && sameConfig) return null;
  if (sameData)
    return {
      problem: `the service has ${paths.config}, and this shell ${shell.config}`,
      next: `${advice.serviceUninstall()}, then remove by hand what you no longer want`,
    };
  const home = configFolder(paths);
  const variable =
    paths.state === join(home, "state") ? `KEYBEARER_HOME=${quoteForShell(home)}` : "env -u KEYBEARER_HOME";
  return {
    problem: `the service has ${paths.config} and ${paths.state}, and this shell ${shell.config} and ${shell.state}`,
    next: `${variable} ${advice.servicePurge()}, for the service's files`,
  };
}

/** Why nothing below this folder may be removed; null: it may. */
function findFolderProblem(path: string, home: string): string | null {
  const found = lstatSync(path);
  if (found.isSymbolicLink()) return "is a link, which is not followed";
  if (!found.isDirectory()) return "is not a folder";
  const uid = process.getuid?.();
  if (uid !== undefined && found.uid !== uid) return "belongs to another user";
  const toHome = relative(realpathSync(path), realpathSync(home));
  const containsHome = toHome !== ".." && !toHome.startsWith(`..${sep}`) && !isAbsolute(toHome);
  return containsHome ? "is, or contains, your home folder" : null;
}

/** A folder that keybearer writes to. */
interface PurgeFolder {
  readonly path: string;
  /** Whether keybearer writes a file of this name. */
  readonly writes: (name: string) => boolean;
  /** keybearer's own links, which lead nowhere. */
  readonly links?: RegExp;
  /** Why nothing in it can be judged. */
  readonly unknown?: string;
}

const HEX = "[0-9a-f]{24}";
const LOCK = new RegExp(`^\\.config\\.yaml\\.lock(?:\\.${HEX}\\.tmp)?$`);
const CONFIG = new RegExp(
  `^(?:config\\.yaml|\\.config\\.yaml\\.${HEX}\\.tmp|\\.config\\.edit\\.${HEX}\\.yaml)$`,
);
const FACT =
  "(?:(?:trust|token-uses|other-models|consoles|key-calls|key-changes|shared|browsers)\\.json|(?:events|notify-queue)\\.jsonl)";
const ASIDE = "\\.set-aside-[\\dTZ-]+";
const FACTS = new RegExp(`^(?:${FACT}(?:\\.tmp|${ASIDE})?|\\.${FACT}\\.${HEX}\\.tmp)$`);
const DAYS = new RegExp(`^\\d{4}-\\d\\d-\\d\\d\\.jsonl(?:\\.gz)?(?:\\.tmp|${ASIDE})?$`);
const DATABASES = new RegExp(
  `^(?:index|mirror)\\.db(?:\\.damaged-[\\dTZ]+)?(?:-wal|-shm|-journal)?(?:${ASIDE})?$`,
);
const SESSIONS = "dashboard-sessions\\.json";
const RUN = new RegExp(
  `^(?:control\\.sock|${SESSIONS}|\\.${SESSIONS}\\.${HEX}\\.tmp|open-[\\w-]{8}\\.html)$`,
);
const OTHERS = /^(?:lock\.db(?:-journal)?|keybearer\.log(?:\.1(?:\.tmp)?)?)$/;
const UNDO = new RegExp(
  `^\\.?(?:${recordedClients().join("|")})-\\d{4}-[\\d-]+T[\\d-]+Z\\.json(?:(?:\\.${HEX})?\\.tmp)?$`,
);

/** Inner folders first. Folders called keys, undo or run may be the user's own, or hold files of the user. */
function purgeFolders(paths: Paths, config: Config | null): PurgeFolder[] {
  const { state, run, usage } = paths;
  const matches =
    (...patterns: readonly RegExp[]) =>
    (name: string) =>
      patterns.some((pattern) => pattern.test(name));
  const keys = join(configFolder(paths), "keys");
  return [
    ...[...new Set([run, join(state, "run")])].map((path) => ({ path, writes: matches(RUN) })),
    { path: usage, writes: matches(DAYS) },
    { path: join(state, "undo"), writes: matches(UNDO) },
    config === null
      ? {
          path: keys,
          writes: () => false,
          unknown: "only a config.yaml that can be read says whether it is keybearer's",
        }
      : { path: keys, writes: (name) => isKeyFile(keys, name, config) },
    { path: state, writes: matches(FACTS, DATABASES, OTHERS) },
    { path: configFolder(paths), writes: matches(CONFIG), links: LOCK },
  ];
}

function configFolder({ own, state }: Paths): string {
  return own[0] ?? state;
}

/** `tools add` and `tools rotate` name a key file after its tool, with a number if there is one already, `use` after its client. */
function isKeyFile(folder: string, file: string, { tools }: Config): boolean {
  const temporary = /^\.(.+)\.[0-9a-f]{24}\.tmp$/.exec(file)?.[1];
  const name = temporary ?? file.replace(/\.[0-9a-f]{12}\.tmp$/, "");
  if (isUndoKey(name)) return true;
  return Object.values(tools).some(
    ({ name: tool, key }) =>
      (key.kind === "file" && key.path === join(folder, name)) ||
      name === tool ||
      (name.startsWith(`${tool}-`) && /^-\d+$/.test(name.slice(tool.length))),
  );
}

/** null: it is removed. */
function keepReason({ path, writes, links, unknown }: PurgeFolder, name: string): string | null {
  const found = lstatSync(join(path, name), { throwIfNoEntry: false });
  if (found?.isSymbolicLink()) return links?.test(name) ? null : "it is a link";
  if (unknown !== undefined) return unknown;
  return !writes(name) || found?.isDirectory() ? "keybearer did not create it" : null;
}

/** The user's keychain may be the only place where a key still is. */
function keychainEntries(config: Config | null): string[] {
  return Object.values(config?.tools ?? {}).flatMap(({ name, key }) =>
    key.kind === "keychain"
      ? [`${describeSource(key)}: the key of ${name}; delete it with the keychain's own program`]
      : [],
  );
}

async function runPurge({ paths }: ServiceContext, purge: Purge): Promise<void> {
  const asked = await askDaemon<Status>(paths, "GET", "/status", undefined, 3000);
  if (asked.ok || asked.running) {
    const pid = asked.ok ? `, as pid ${asked.value.pid}` : "";
    const running = { problem: `keybearer still runs here${pid}`, next: "stop it, then try again" };
    return fail([running, "configuration and data were left as they are"], EXIT.alreadyRunning);
  }
  const problems: string[] = [];
  for (const path of purge.files) {
    try {
      // Not recursive: a folder that has appeared under this name is not keybearer's.
      rmSync(path, { force: true });
    } catch (error) {
      problems.push(`${path}: ${errorMessage(error)}`);
    }
  }
  for (const folder of purge.folders) {
    try {
      rmdirSync(folder);
    } catch {
      // It is not empty. What is left in it was printed.
    }
  }
  printPurge(purge, "removed");
  if (problems.length > 0) fail(`this could not be removed:\n${problems.join("\n")}`, EXIT.failed);
}

function printPurge({ files, leaves }: Purge, verb: string): void {
  print(...files.map((path) => `${verb} ${path}`), ...leaves.map((reason) => `stays: ${reason}`));
  if (files.length > 0)
    printText("a key that was stored here still works: delete it in the gateway's console");
}

function exists(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

function isFolder(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}
