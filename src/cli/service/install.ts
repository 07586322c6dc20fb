import { existsSync, realpathSync } from "node:fs";
import type { Config } from "../../config/schema.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import { quoteForShell, withNextBelow } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import { prepareFolders } from "../../core/paths.ts";
import { version } from "../../core/version.ts";
import { findNotifyProblem } from "../../service/notify.ts";
import type { Plan, ServiceState, Step } from "../../service/service.ts";
import {
  createSpec,
  describeProcess,
  findSpecProblem,
  mayHaveNamespaces,
  NO_NAMESPACES_COST,
  type ServiceSpec,
  stableNode,
  stablePackage,
} from "../../service/spec.ts";
import { noteIneffective } from "../safe-start.ts";
import { fail, failNull, notice, printText } from "../ui/messages.ts";
import { confirm } from "../ui/prompts.ts";
import { stdio } from "../ui/stdio.ts";
import { isInteractive } from "../ui/terminal.ts";
import { printableLines } from "../ui/text.ts";
import {
  type ContextOptions,
  type InstallContext,
  installContext,
  reachManager,
  type ServiceContext,
  type ServiceManager,
} from "./context.ts";
import {
  type Conflict,
  failNotServing,
  notStarted,
  type Start,
  startConflict,
  untilServing,
  usableConfig,
  withDrainProgress,
} from "./restart.ts";
import { checkCommand, usualConfig } from "./status.ts";
import { checkVariables, usedTools } from "./variables.ts";

export interface InstallOptions {
  readonly config?: string;
  readonly dryRun?: boolean;
  /** A dry run prints the comments of the files, too. */
  readonly verbose?: boolean;
  readonly yes?: boolean;
}

const UNCHANGED = "nothing was changed";

export async function install(options: InstallOptions, overrides: ContextOptions = {}): Promise<void> {
  const context = await installContext({ ...overrides, config: options.config ?? overrides.config });
  const prepared = await prepareInstall(context, options.dryRun ?? false);
  if (prepared === null) return;
  if (options.dryRun) await printDryRun(context, prepared, options.verbose ?? false);
  else await performInstall(context, prepared, options.yes ?? false);
}

interface PreparedInstall extends SpecResult {
  readonly manager: ServiceManager;
  readonly config: Config;
  readonly before: ServiceState;
  /** Only a dry run goes on with one. */
  readonly conflict: Conflict | null;
}

/** Checks what would keep the service from starting. null: the reason was printed. */
async function prepareInstall(context: InstallContext, dryRun: boolean): Promise<PreparedInstall | null> {
  const { paths, missingConfig } = context;
  // A dry run works without a manager that answers.
  const manager = dryRun && context.manager !== null ? context.manager : await reachManager(context);
  if (manager === null) return null;
  if (missingConfig !== null) return failNull([missingConfig, UNCHANGED], EXIT.badConfig);
  const config = await usableConfig(paths, UNCHANGED);
  if (config === null) return null;
  // The service clears the variables that would keep it from starting. This one people may count on.
  noteIneffective();
  const before = await manager.state();
  const { file } = before;
  if (file.kind === "foreign") return failNull([withNextBelow(file), UNCHANGED], EXIT.failed);
  const notifier = manager.kind === "systemd" ? findNotifyProblem() : null;
  if (notifier !== null) return failNull([notifier, UNCHANGED], EXIT.failed);
  const conflict = await startConflict(paths, config, before);
  if (conflict !== null && !dryRun) return failNull([conflict, UNCHANGED], conflict.exitCode);
  const result = specFor(context, config, manager.kind);
  const bad = findSpecProblem(result.spec, manager.kind);
  if (bad !== null) return failNull([bad, UNCHANGED], EXIT.failed);
  notice(...context.kept, ...result.warnings);
  return { ...result, manager, config, before, conflict };
}

async function printDryRun(
  { paths }: ServiceContext,
  { manager, spec, conflict }: PreparedInstall,
  verbose: boolean,
): Promise<void> {
  const plan = await manager.planInstall(spec);
  if (!plan.ok) return fail([withNextBelow(plan), UNCHANGED], EXIT.failed);
  const missing = [paths.state, paths.run].filter((folder) => !existsSync(folder));
  printLines(missing.map((folder) => `would create the folder ${folder}`));
  printSteps(plan.steps, verbose);
  if (plan.before === "same") notice(`${manager.file} is up to date`);
  const answer = await manager.available();
  if (!answer.ok) notice({ ...answer, problem: `it could not be installed now: ${answer.problem}` });
  if (conflict !== null)
    notice({ problem: `it could not be started now: ${conflict.problem}`, next: conflict.next });
}

/** Writes the service file, starts the service, and waits until it answers. */
async function performInstall(
  context: ServiceContext,
  { manager, config, before, spec }: PreparedInstall,
  yes: boolean,
): Promise<void> {
  const { paths } = context;
  const problems = prepareFolders(paths);
  if (problems.length > 0) return fail(problems, EXIT.badConfig);
  const variables = await checkVariables(context, manager, config, spec);
  notice(...variables.notes.map(({ whose, problem, next }) => ({ problem: `${whose}: ${problem}`, next })));
  if (variables.none && !yes && !(await confirmWithoutKeys())) return;
  const plan = await manager.planInstall(spec);
  if (!plan.ok) return fail([withNextBelow(plan), UNCHANGED], EXIT.failed);
  const result = await withDrainProgress(manager.apply(plan.steps), paths, before.pid);
  if (!result.ok && result.next !== null) return fail(withNextBelow(result), EXIT.failed);
  if (result.ok) printWritten(plan, manager.file);
  if (result.ok && before.file.kind === "ours" && before.file.service.config !== paths.config)
    printText(`it used ${before.file.service.config} before, and uses ${paths.config} now`);
  const start = result.ok ? await untilServing(manager, paths) : await notStarted(manager, result);
  if (!start.ok) return failNotServing(manager, start, checkCommand(paths.config, usualConfig(context)));
  printServing(start);
  reportMissingKeys(start.status, usedTools(config).length);
  const linger = manager.kind === "systemd" ? await manager.lingerHint() : null;
  if (linger !== null) printText(linger);
}

interface SpecResult {
  readonly spec: ServiceSpec;
  /** About paths that an upgrade removes, and about a unit without namespaces. */
  readonly warnings: readonly string[];
}

/** What a service on this machine starts with. */
export function specFor(
  { paths, env, ...context }: ServiceContext,
  config: Config,
  kind: ServiceManager["kind"],
): SpecResult {
  const node = stableNode(context.node, realpath);
  const main = stablePackage(context.main, realpath);
  const namespaces = mayHaveNamespaces(config);
  const cost =
    kind === "systemd" && !namespaces
      ? `${describeProcess(config)}, so the unit is written without user namespaces. ${NO_NAMESPACES_COST}`
      : null;
  return {
    spec: createSpec({ node: node.path, main: main.path, paths, env, namespaces, drainMs: config.drain }),
    warnings: [node.warning, main.warning, cost].filter((warning) => warning !== null),
  };
}

function realpath(path: string): string | null {
  try {
    return realpathSync(path);
  } catch {
    return null;
  }
}

/** What would be done, in order. */
export function printSteps(steps: readonly Step[], verbose = false): void {
  printLines(
    steps.map((step) => {
      if (step.kind === "remove") return `would remove ${step.file}`;
      if (step.kind === "run") return `would run ${step.argv.map(quoteForShell).join(" ")}`;
      const text = verbose ? step.text : withoutComments(step.text);
      return `would write ${step.file}:\n\n${text.trim()}\n`;
    }),
  );
}

/** Of a unit or a property list. */
function withoutComments(text: string): string {
  return text
    .replace(/<!--[\s\S]*?-->/g, "")
    .replace(/^#.*$/gm, "")
    .replace(/\n\s*\n/g, "\n")
    .replace(/^\[/gm, "\n[");
}

function printLines(lines: readonly string[]): void {
  for (const line of lines) stdio().stdout.write(`${printableLines(line)}\n`);
}

/** A service that can serve no tool is probably a mistake. */
async function confirmWithoutKeys(): Promise<boolean> {
  if (!isInteractive()) {
    fail(
      `no tool would have a key. to install it anyway: ${advice.serviceInstallAnyway()}\n${UNCHANGED}`,
      EXIT.usage,
    );
    return false;
  }
  if (await confirm("no tool would have a key. install it anyway?", "yes")) return true;
  fail(`not installed; ${UNCHANGED}`, EXIT.failed);
  return false;
}

function printWritten({ before, restarts }: Plan & { ok: true }, file: string): void {
  const restarted = restarts ? "; the running service was restarted after its requests finished" : "";
  if (before === "none") printText(`installed ${file}`);
  else if (before === "different") printText(`updated ${file}${restarted}`);
  else printText(`${file} is up to date${restarted || "; nothing was written"}`);
}

function printServing({ status, state }: Start & { ok: true }): void {
  printText(`it runs as pid ${state.pid}, and answers on ${status.listen.join(" and ")}`);
  if (status.version !== version())
    notice({
      problem: `the daemon is keybearer ${status.version}, this command is keybearer ${version()}`,
      next: advice.serviceRestart(),
    });
}

function reportMissingKeys({ tools }: Status, used: number): void {
  const missing = tools.filter(({ state }) => state === "key-unavailable" || state === "needs-trust");
  notice(
    ...missing.map(({ name, why, next }) => {
      const problem = `tool ${name}: ${why ?? "it has no key"}`;
      return { problem, next: next ?? advice.doctor() };
    }),
  );
  if (missing.length > 0 && missing.length >= used)
    notice("the service runs, but can serve no tool until that is done");
}
