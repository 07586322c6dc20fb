import { dirname, isAbsolute, join } from "node:path";
import { advice } from "../core/advice.ts";
import type { Problem } from "../core/display.ts";
import type { Paths } from "../core/paths.ts";
import { logFileIn } from "./log-file.ts";

/** What a service file says. Every path is absolute, and nothing in it is a secret. */
export interface ServiceSpec {
  /** The node binary, by a path that survives an upgrade where there is one. */
  readonly node: string;
  /** `dist/cli/main.js` of the installed package. */
  readonly main: string;
  readonly config: string;
  /** PATH for `command:` sources, and the variables that decide where the files are. */
  readonly environment: Readonly<Record<string, string>>;
  /** Folders the daemon writes to. Under systemd everything else is read-only. */
  readonly writable: readonly string[];
  /**
   * systemd gives the service its own read-only view of the file system. Not with `process:` or `usage.project`, because no
   * other process can be inspected from a user namespace.
   */
  readonly namespaces: boolean;
  /** The file launchd writes the daemon's output to. systemd has the journal. */
  readonly logFile: string;
  /** The manager kills a daemon that has not ended this long after a stop. */
  readonly stopSeconds: number;
}

/** What is read back from an installed service file. */
export interface InstalledService {
  readonly node: string;
  readonly main: string;
  readonly config: string;
  /** Those of PATH_VARIABLES that it sets. */
  readonly environment: Readonly<Record<string, string>>;
  readonly namespaces: boolean;
  /** null: systemd's journal. */
  readonly logFile: string | null;
  /** null: the file has no number of seconds. */
  readonly stopSeconds: number | null;
  readonly format: number;
}

/** Goes up when a template changes so that installed files should be written again. */
export const FORMAT = 1;

/** The variables that core/paths.ts reads: with them the daemon finds the same folders as the command line. */
export const PATH_VARIABLES = ["KEYBEARER_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];

interface SpecOptions {
  readonly node: string;
  readonly main: string;
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly namespaces: boolean;
  /** How long the daemon lets requests finish. */
  readonly drainMs: number;
}

/** After the drain, the daemon cuts requests, closes its files and exits. */
const AFTER_DRAIN_SECONDS = 10;

export function stopSecondsFor(drainMs: number): number {
  return Math.ceil(drainMs / 1000) + AFTER_DRAIN_SECONDS;
}

export function createSpec({ node, main, paths, env, namespaces, drainMs }: SpecOptions): ServiceSpec {
  const environment: Record<string, string> = { PATH: servicePath(env.HOME) };
  // KEYBEARER_HOME overrides the others.
  if (env.KEYBEARER_HOME) environment.KEYBEARER_HOME = dirname(paths.state);
  else
    for (const name of PATH_VARIABLES) {
      const value = env[name];
      if (value !== undefined && isAbsolute(value)) environment[name] = value;
    }
  // The dashboard edits config.yaml. The folder of a file named with --config stays read-only: it may be the home folder.
  const configFolder = paths.own.filter((folder) => folder === dirname(paths.config));
  return {
    node,
    main,
    config: paths.config,
    environment,
    writable: [paths.state, paths.run, ...configFolder],
    namespaces,
    logFile: logFileIn(paths),
    stopSeconds: stopSecondsFor(drainMs),
  };
}

/** The part of config.yaml that decides whether the unit has user namespaces. */
interface ProcessSettings {
  readonly tools: Readonly<Record<string, { readonly name: string; readonly process: string | null }>>;
  readonly usage: { readonly project: "path" | "name" | "off" };
}

/** Whether systemd may put the service into user namespaces: no other process can be inspected from there. */
export function mayHaveNamespaces(config: ProcessSettings): boolean {
  return config.usage.project === "off" && toolsWithProcess(config).length === 0;
}

export const NO_NAMESPACES_COST =
  "without them a mistake in keybearer, in its packages or in a command of yours can change all your files";

/** What needs a unit without user namespaces: tool codex has process:, and usage.project is path */
export function describeProcess(config: ProcessSettings): string {
  const { project } = config.usage;
  const names = toolsWithProcess(config);
  const parts: string[] = [];
  if (names.length > 0)
    parts.push(`${names.length === 1 ? `tool ${names[0]} has` : `tools ${names.join(", ")} have`} process:`);
  if (project !== "off") parts.push(`usage.project is ${project}`);
  return parts.join(", and ");
}

/** What does not work from user namespaces: no program is recognized, and no project is found */
export function describeBlindness(config: ProcessSettings): string {
  const parts: string[] = [];
  if (toolsWithProcess(config).length > 0) parts.push("no program is recognized");
  if (config.usage.project !== "off") parts.push("no project is found");
  return parts.join(", and ");
}

/** The tools that are identified by the program that calls. */
function toolsWithProcess({ tools }: ProcessSettings): string[] {
  return Object.values(tools).flatMap(({ name, process }) => (process === null ? [] : [name]));
}

const SYSTEM_PATH = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
const PACKAGE_MANAGERS = ["/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin"];

/**
 * Not the shell's PATH: then each terminal would render a different file. The user's folders come last, because
 * anything can put a program there.
 */
function servicePath(home: string | undefined): string {
  const own = home !== undefined && isAbsolute(home) ? [join(home, ".local/bin"), join(home, "bin")] : [];
  return [...SYSTEM_PATH, ...PACKAGE_MANAGERS, ...own].join(":");
}

/** Why no service file can be written from this; null: it can. */
export function findSpecProblem(spec: ServiceSpec, manager: "systemd" | "launchd"): Problem | null {
  const { node, main, config, environment, writable, logFile } = spec;
  const values = [node, main, config, logFile, ...writable, ...Object.values(environment)];
  // A line break would start a directive of its own. XML has no way to write most control characters.
  const bad = values.find((value) => [...value].some((char) => char < " " || char === "\u007f"));
  if (bad !== undefined) {
    const problem = `a service cannot have a path or variable with a line break or control character in it: ${JSON.stringify(bad)}`;
    return { problem, next: null };
  }
  // systemd checks this before it starts anything, however the path is escaped.
  if (manager === "systemd" && /["'\\]/.test(node)) {
    const problem = `systemd starts no program with a quote or backslash in its path: ${node}`;
    return { problem, next: "install node elsewhere" };
  }
  return null;
}

interface StablePath {
  readonly path: string;
  /** What happens when an upgrade removes this path, and what to type then; null: the path survives upgrades. */
  readonly warning: string | null;
}

/** Resolves every link in a path; null: nothing is there. */
type Realpath = (path: string) => string | null;

/** Links that survive an upgrade. One is used if it leads to the binary that runs now. */
const SYSTEM_NODES = [
  "/usr/bin/node",
  "/usr/local/bin/node",
  "/opt/homebrew/bin/node",
  "/opt/local/bin/node",
  "/snap/bin/node",
  "/run/current-system/sw/bin/node",
  "/home/linuxbrew/.linuxbrew/bin/node",
];

interface VersionManager {
  readonly name: string;
  /** Matches the path of one version of node. */
  readonly version: RegExp;
  /** Paths that lead to the version in use, where the manager has one that works without a shell. */
  readonly current?: (match: RegExpExecArray) => readonly string[];
}

/** Shims are never used: they depend on the working folder and on variables that only a shell has. */
const VERSION_MANAGERS: readonly VersionManager[] = [
  {
    name: "Homebrew",
    version: /^(.*)\/Cellar\/(node(?:@\d+)?)\/[^/]+\/bin\/node$/,
    // A numbered formula has no link in bin, only one in opt.
    current: ([, prefix, formula]) => [`${prefix}/opt/${formula}/bin/node`, `${prefix}/bin/node`],
  },
  { name: "nvm", version: /\/versions\/node\/v[^/]+\/bin\/node$/ },
  {
    name: "fnm",
    version: /^(.*)\/node-versions\/v[^/]+\/installation\/bin\/node$/,
    current: ([, root]) => [`${root}/aliases/default/bin/node`],
  },
  { name: "volta", version: /\/tools\/image\/node\/[^/]+\/bin\/node$/ },
  {
    name: "mise",
    version: /^(.*\/(?:mise|rtx)\/installs\/node)\/((\d+)\.\d+)?[^/]*\/bin\/node$/,
    // Its aliases are links, which an upgrade moves.
    current: ([, root, minor = "latest", major = "latest"]) =>
      ["lts", "latest", major, minor].map((alias) => `${root}/${alias}/bin/node`),
  },
  { name: "asdf", version: /\/installs\/nodejs\/[^/]+\/bin\/node$/ },
  { name: "nodenv", version: /\/\.?nodenv\/versions\/[^/]+\/bin\/node$/ },
  { name: "n", version: /\/n\/versions\/node\/[^/]+\/bin\/node$/ },
  {
    name: "nodebrew",
    version: /^(.*\/\.nodebrew)\/node\/v[^/]+\/bin\/node$/,
    current: ([, root]) => [`${root}/current/bin/node`],
  },
  {
    name: "nvs",
    version: /^(.*\/\.nvs)\/(?:default|node\/[^/]+\/[^/]+)\/bin\/node$/,
    current: ([, root]) => [`${root}/default/bin/node`],
  },
  { name: "proto", version: /\/\.proto\/tools\/node\/[^/]+\/(?:bin\/)?node$/ },
  {
    name: "Nix",
    version: /^\/nix\/store\/[^/]+\/bin\/node$/,
    current: () => ["/run/current-system/sw/bin/node", "/nix/var/nix/profiles/default/bin/node"],
  },
];

/** fnm's links for one shell, removed with that shell. */
const SHELL_ONLY = /\/fnm_multishells\//;

export function stableNode(execPath: string, realpath: Realpath): StablePath {
  const real = realpath(execPath) ?? execPath;
  const manager = findVersionManager(real);
  const match = manager?.version.exec(real);
  const current = match ? (manager?.current?.(match) ?? []) : [];
  const stable = [...current, ...SYSTEM_NODES].find((path) => realpath(path) === real);
  if (stable !== undefined) return { path: stable, warning: null };
  if (manager !== undefined) {
    const warning = `this node belongs to one version of ${manager.name}: ${real}. the service stops working when you remove that version; after you change versions: ${advice.serviceInstall()}`;
    return { path: real, warning };
  }
  // A path that no manager owns stays as it was typed, links included: the owner moves the link at an upgrade.
  return { path: SHELL_ONLY.test(execPath) ? real : execPath, warning: null };
}

function findVersionManager(node: string): VersionManager | undefined {
  return VERSION_MANAGERS.find(({ version }) => version.test(node));
}

interface PackageManager {
  /** Matches the path of one version of the package. */
  readonly version: RegExp;
  /** Paths that lead to the installed version. */
  readonly current: (match: RegExpExecArray) => readonly string[];
  readonly warning: string;
}

const PACKAGES: readonly PackageManager[] = [
  {
    version: /\/_npx\/|\/dlx-[^/]+\/|\/dlx\/|\/bunx-/,
    current: () => [],
    warning:
      "this keybearer is in a cache that is cleared from time to time, and the service would be gone with it. install it first: npm install -g keybearer",
  },
  {
    version: /^(.*)\/\.pnpm\/keybearer@[^/]+\/node_modules(\/keybearer\/.*)$/,
    // .pnpm is beside node_modules for global packages, and inside it for all others.
    current: ([, root, rest]) => [`${root}/node_modules${rest}`, `${root}${rest}`],
    warning: `pnpm keeps each version of keybearer in a folder of its own. after an upgrade of keybearer: ${advice.serviceInstall()}`,
  },
  {
    version: /^(.*)\/Cellar\/keybearer\/[^/]+(\/.*)$/,
    current: ([, prefix, rest]) => [`${prefix}/opt/keybearer${rest}`],
    warning: `Homebrew keeps each version of keybearer in a folder of its own. after an upgrade of keybearer: ${advice.serviceInstall()}`,
  },
];

/** `dist/cli/main.js` by a path that survives an upgrade, where there is one. */
export function stablePackage(main: string, realpath: Realpath): StablePath {
  const real = realpath(main) ?? main;
  for (const { version, current, warning } of PACKAGES) {
    const match = version.exec(real);
    if (match === null) continue;
    const stable = current(match).find((path) => realpath(path) === real);
    return stable === undefined ? { path: real, warning } : { path: stable, warning: null };
  }
  return { path: real, warning: oneNodeOnly(real) };
}

/** npm installs a global package into the folder of the node it runs on. */
function oneNodeOnly(main: string): string | null {
  const root = /^(.*)\/lib\/node_modules\/keybearer\//.exec(main)?.[1];
  const manager = root === undefined ? undefined : findVersionManager(`${root}/bin/node`);
  if (manager === undefined) return null;
  return `this keybearer was installed for one version of node that ${manager.name} keeps. after you change versions: npm install -g keybearer, then ${advice.serviceInstall()}`;
}
