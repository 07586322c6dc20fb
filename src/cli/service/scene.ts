import { realpathSync } from "node:fs";
import { userInfo } from "node:os";
import { fileURLToPath } from "node:url";
import { findPaths, type Paths } from "../../core/paths.ts";
import { packageFolder } from "../../core/version.ts";
import { createRunner, type RunCommand } from "../../service/command-runner.ts";
import { createLaunchd } from "../../service/launchd/launchd.ts";
import type { ServiceManager } from "../../service/manager.ts";
import { createServiceFiles } from "../../service/service-file.ts";
import type { InstalledUnit } from "../../service/spec.ts";
import { createSystemd } from "../../service/systemd/systemd.ts";
import { unitFolder } from "../../service/systemd/unit-folder.ts";
import { template } from "../../service/template.ts";

/** What the commands about the service stand on. */
export interface Scene {
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly run: RunCommand;
  /** null: this system has neither systemd nor launchd. */
  readonly manager: ServiceManager | null;
  readonly platform: NodeJS.Platform;
  /** Of this program: process.execPath, and the file it was started by. */
  readonly node: string;
  readonly main: string;
}

export interface SceneDeps {
  readonly config?: string | undefined;
  readonly env?: NodeJS.ProcessEnv;
  readonly home?: string;
  readonly platform?: NodeJS.Platform;
  readonly run?: RunCommand;
  readonly main?: string;
}

/** The real one, where nothing is put in its place. */
export async function createScene(deps: SceneDeps = {}): Promise<Scene> {
  const { env = process.env, platform = process.platform } = deps;
  const run = deps.run ?? createRunner(env);
  const paths = findPaths({ config: deps.config, env, ...(deps.home ? { home: deps.home } : {}) });
  return {
    ...{ paths, env, run, platform },
    manager: await managerFor(platform, { paths, env, run }),
    node: process.execPath,
    main: deps.main ?? mainFile(),
  };
}

async function managerFor(
  platform: NodeJS.Platform,
  { paths, env, run }: Pick<Scene, "paths" | "env" | "run">,
): Promise<ServiceManager | null> {
  const files = createServiceFiles();
  const { home } = paths;
  const { uid } = userInfo();
  if (platform === "linux") {
    const where = await unitFolder(run, { home, configHome: env.XDG_CONFIG_HOME });
    const runtime = env.XDG_RUNTIME_DIR?.startsWith("/") ? env.XDG_RUNTIME_DIR : `/run/user/${uid}`;
    return createSystemd({
      ...{ run, files, where, uid, specifiers: { home, runtime } },
      template: template("keybearer.service"),
    });
  }
  if (platform !== "darwin") return null;
  const logFile = `${paths.state}/keybearer.log`;
  return createLaunchd({ run, files, home, uid, logFile, template: template("com.keybearer.plist") });
}

/**
 * Where the installed service has its files, whatever this shell's variables are. Only the folder of sockets is the same
 * for both where the unit does not say: the login makes it.
 */
export function placesOf({ config, home, environment }: InstalledUnit, { env, paths }: Scene): Paths {
  const { XDG_RUNTIME_DIR } = env;
  const login = XDG_RUNTIME_DIR === undefined ? {} : { XDG_RUNTIME_DIR };
  return findPaths({
    config,
    env: { ...login, ...environment, KEYBEARER_HOME: home ?? "" },
    home: paths.home,
  });
}

/** The program itself. */
function mainFile(): string {
  const main = import.meta.url.endsWith(".ts") ? "src/cli/main.ts" : "dist/cli/main.js";
  return fileURLToPath(new URL(main, packageFolder()));
}

export function leadsTo(path: string, file: string): boolean {
  try {
    return realpathSync(path) === realpathSync(file);
  } catch {
    return false;
  }
}
