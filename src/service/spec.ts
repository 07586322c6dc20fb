import { dirname, isAbsolute, join } from "node:path";
import type { Paths } from "../core/paths.ts";

/** What an installed service must know. Every path is absolute, and nothing in it is a secret. */
export interface ServiceSpec {
  /** The node binary, by a path that outlives an upgrade where there is one. */
  readonly node: string;
  /** `dist/cli/main.js` of the installed package. */
  readonly main: string;
  readonly config: string;
  /** KEYBEARER_HOME, if it was set when the service was installed. */
  readonly home: string | null;
  /** What else decides where the files are: the XDG variables that were set in the shell. A manager has its own. */
  readonly environment: Readonly<Record<string, string>>;
  /** Folders the daemon writes to. All else is read-only for it under systemd. */
  readonly writable: readonly string[];
  /**
   * Whether systemd gives it a read-only view of the file system. It must not where a tool is recognised by `process:`,
   * and cannot where users may not make namespaces.
   */
  readonly namespaces: boolean;
  /** PATH, for what `command:` sources start. */
  readonly path: string;
  /** Where launchd writes what the daemon says. systemd has its journal. */
  readonly logFile: string;
}

/** What can be read out of an installed unit or agent. */
export interface InstalledUnit {
  readonly node: string;
  readonly main: string;
  readonly config: string;
  readonly home: string | null;
  /** The XDG variables it sets. */
  readonly environment: Readonly<Record<string, string>>;
  /** It has a view of the file system of its own, in which no other process can be looked at. */
  readonly namespaces: boolean;
  readonly format: number;
}

/** Goes up when a template changes so that an installed file should be written anew. */
export const FORMAT = 1;

/** The variables of places.ts, so that the daemon finds the folders that the command line finds. */
export const PLACE_VARIABLES = ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] as const;

export interface SpecDeps {
  readonly node: string;
  readonly main: string;
  readonly paths: Paths;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly namespaces: boolean;
}

export function specOf({ node, main, paths, env, namespaces }: SpecDeps): ServiceSpec {
  const home = env.KEYBEARER_HOME ? join(paths.state, "..") : null;
  const set = PLACE_VARIABLES.flatMap((name) => {
    const value = env[name];
    return value !== undefined && isAbsolute(value) ? [[name, value] as const] : [];
  });
  // The folder of config.yaml, too, since a tool can be switched off and on in the dashboard. Not that of a file which
  // was named: it may be the person's whole home.
  const beside = paths.own.filter((folder) => folder === dirname(paths.config));
  return {
    ...{ node, main, config: paths.config, home, namespaces },
    environment: home === null ? Object.fromEntries(set) : {},
    writable: [paths.state, paths.run, ...beside],
    path: servicePath(env.HOME),
    logFile: join(paths.state, "keybearer.log"),
  };
}

const SYSTEM_PATH = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
const PACKAGE_MANAGERS = ["/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/snap/bin"];

/**
 * Where people's programs lie as a rule, the same from whichever shell the service is installed: with that shell's own
 * PATH in it, every other terminal would make another file of it. The person's folders come last, being the easiest to
 * put something into.
 */
export function servicePath(home: string | undefined): string {
  const own = home !== undefined && isAbsolute(home) ? [join(home, ".local/bin"), join(home, "bin")] : [];
  return [...SYSTEM_PATH, ...PACKAGE_MANAGERS, ...own].join(":");
}

/** Why no service file can be written from this; null: it can. Otherwise writing it throws just that. */
export function specFault(spec: ServiceSpec, manager: "systemd" | "launchd"): string | null {
  const { node, main, config, home, environment, writable, path, logFile } = spec;
  const texts = [node, main, config, home ?? "", path, logFile, ...writable, ...Object.values(environment)];
  // It would end the line, and what follows would count as a line of its own. XML cannot even write most of them.
  const broken = texts.find((text) =>
    [...text].some((character) => character < " " || character === "\u007f"),
  );
  if (broken !== undefined) {
    return `a service cannot have a path or variable with a line break or control character in it: ${JSON.stringify(broken)}`;
  }
  // As it checks before it starts anything, however it was escaped.
  if (manager === "systemd" && /["'\\]/.test(node)) {
    return `systemd starts no program with a quote or backslash in its path: ${node} → install node elsewhere`;
  }
  return null;
}
