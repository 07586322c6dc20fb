import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { advice } from "../../core/advice.ts";
import { type Problem, quoteForShell, withNextBelow } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import { packageFolder } from "../../core/version.ts";
import { Launchd } from "../../service/launchd.ts";
import { commandRunner, type RunCommand } from "../../service/service.ts";
import type { InstalledService } from "../../service/spec.ts";
import { Systemd } from "../../service/systemd.ts";
import { failNull } from "../ui/messages.ts";
import { homeFolder, stdio } from "../ui/stdio.ts";

export type ServiceManager = Systemd | Launchd;

/** What the service commands work with. */
export interface ServiceContext {
  readonly paths: Paths;
  /** The paths that this shell's variables lead to. The installed service may have others. */
  readonly shellPaths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly platform: NodeJS.Platform;
  /** null: this system has neither systemd nor launchd. */
  readonly manager: ServiceManager | null;
  /** Runs the manager's programs. */
  readonly run: RunCommand;
  /** Of this process: process.execPath, and the program's main file. */
  readonly node: string;
  readonly main: string;
}

/** What a test replaces. */
export interface ContextOptions {
  readonly config?: string | undefined;
  readonly env?: NodeJS.ProcessEnv;
  readonly home?: string;
  readonly platform?: NodeJS.Platform;
  readonly run?: RunCommand;
}

/** As this shell has it. */
export async function createContext(options: ContextOptions = {}): Promise<ServiceContext> {
  const { env = stdio().env, platform = process.platform } = options;
  const run = options.run ?? commandRunner(env);
  const paths = findPaths({ config: options.config, env, home: options.home ?? homeFolder() });
  const main = import.meta.url.endsWith(".ts") ? "src/cli/main.ts" : "dist/cli/main.js";
  return {
    paths,
    shellPaths: paths,
    env,
    platform,
    run,
    manager: await findManager(platform, { run, home: paths.home, env, uid: process.getuid?.() ?? -1 }),
    node: process.execPath,
    main: fileURLToPath(new URL(main, packageFolder())),
  };
}

async function findManager(
  platform: NodeJS.Platform,
  options: Parameters<typeof Systemd.open>[0],
): Promise<ServiceManager | null> {
  if (platform === "linux") return Systemd.open(options);
  return platform === "darwin" ? new Launchd(options) : null;
}

/** With the paths of the installed service, whatever this shell's variables say. */
export async function installedContext(options: ContextOptions = {}): Promise<ServiceContext> {
  const context = await createContext(options);
  const file = await context.manager?.found();
  return file?.kind === "ours" ? { ...context, paths: installedPaths(file.service, context) } : context;
}

/** null: there is no manager, or it does not answer. */
export async function answeringManager({ manager }: ServiceContext): Promise<ServiceManager | null> {
  return manager !== null && (await manager.available()).ok ? manager : null;
}

/**
 * The manager of the service that is installed for the files of this shell, if it answers. Another KEYBEARER_HOME or --config
 * is another keybearer.
 */
export async function serviceHere(context: ServiceContext): Promise<ServiceManager | null> {
  const { paths, shellPaths, manager } = context;
  if (manager === null || (await manager.found()).kind === "none") return null;
  const isOther = shellPaths.explicit && paths.config !== shellPaths.config;
  return isOther || paths.state !== shellPaths.state ? null : answeringManager(context);
}

/** Where the installed service has its files. */
export function installedPaths(
  { config, environment }: InstalledService,
  { env, shellPaths }: ServiceContext,
): Paths {
  // The login sets XDG_RUNTIME_DIR, so it is the same for the shell and for a service that does not set it.
  const { XDG_RUNTIME_DIR } = env;
  const login = XDG_RUNTIME_DIR === undefined ? {} : { XDG_RUNTIME_DIR };
  return findPaths({ config, env: { ...login, ...environment }, home: shellPaths.home });
}

export interface InstallContext extends ServiceContext {
  /** What the installed service keeps although this shell differs. */
  readonly kept: readonly string[];
  /** The service's config.yaml is gone: what to do; null: it is there, or another file was named. */
  readonly missingConfig: Problem | null;
}

/**
 * An installed service keeps its files unless others are named now: people repair a service from any shell, and that must not
 * move it to other files.
 */
export async function installContext(options: ContextOptions): Promise<InstallContext> {
  const context = await createContext(options);
  const file = await context.manager?.found();
  const { KEYBEARER_HOME: shellHome, ...variables } = context.env;
  if (file?.kind !== "ours") return { ...context, kept: [], missingConfig: null };
  const { service } = file;
  const home = service.environment.KEYBEARER_HOME;
  if (shellHome && resolve(shellHome) !== home) return { ...context, kept: [], missingConfig: null };
  const env = { ...service.environment, ...variables, KEYBEARER_HOME: home ?? "" };
  const config = options.config ?? service.config;
  const paths = findPaths({ config, env, home: context.paths.home });
  return {
    ...context,
    env,
    paths,
    kept: differences(context.paths, paths),
    missingConfig:
      options.config === undefined && !existsSync(config)
        ? missingMessage(config, context.paths.config)
        : null,
  };
}

function differences(shell: Paths, service: Paths): string[] {
  const messages: string[] = [];
  if (service.config !== shell.config)
    messages.push(`the service keeps its ${service.config} (to change that: --config)`);
  if (service.state !== shell.state) messages.push(`the service keeps its files in ${service.state}`);
  return messages;
}

function missingMessage(config: string, usual: string): Problem {
  const other = usual !== config && existsSync(usual) ? quoteForShell(usual) : "<file>";
  return {
    problem: `the installed service uses ${config}, which no longer exists`,
    next: `put it back, or name another: ${advice.serviceInstall(other)}`,
  };
}

/** The manager, if it answers. null: the reason was printed. */
export async function reachManager({ manager, platform }: ServiceContext): Promise<ServiceManager | null> {
  if (manager === null)
    return failNull(
      `keybearer can be a service of systemd or launchd, and ${platform} has neither\nstart it in the background: ${advice.start()}`,
      EXIT.failed,
    );
  const answer = await manager.available();
  return answer.ok ? manager : failNull(`${answer.problem}\n${answer.next ?? advice.start()}`, EXIT.failed);
}

/** What the manager did not do, and what to type. */
export function describeResult({ problem, next }: Problem): string {
  return withNextBelow({ problem, next: next ?? advice.serviceStatus() });
}
