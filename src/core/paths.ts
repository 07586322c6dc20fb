import { mkdirSync, readFileSync, type Stats, statSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Problem } from "./display.ts";
import { errorMessage } from "./errors.ts";

/** user: a person's own keybearer. system: a service with a user of its own, whose files no other user can read. */
export type Mode = "user" | "system";

/** Where keybearer's files are. */
export interface Paths {
  readonly mode: Mode;
  readonly config: string;
  /** What the system service changes: it is applied over config.yaml, which belongs to root. null: config.yaml is changed. */
  readonly overrides: string | null;
  /** The file was named with --config, so it must exist. */
  readonly explicit: boolean;
  readonly state: string;
  readonly run: string;
  readonly socket: string;
  /** Held by the daemon that owns the state folder. */
  readonly lock: string;
  readonly trust: string;
  /** The folder of the usage journal. */
  readonly usage: string;
  /** The database that reports read, made from the journal. */
  readonly index: string;
  /** Console rows and verdicts. */
  readonly mirror: string;
  /** When each token was last used. */
  readonly tokenUses: string;
  /** Which models answered instead of others, as far as that was reported. */
  readonly otherModels: string;
  /** The sessions of console logins. */
  readonly consoles: string;
  /** When gateways were asked about keys, see KeyCallBudgets. */
  readonly keyCalls: string;
  /** Changes of keys that are not finished. */
  readonly keyChanges: string;
  /** This machine's identity among the machines that share limits and records, and what it read of the others. */
  readonly shared: string;
  /** Alerts that were not delivered yet. */
  readonly notifyQueue: string;
  /** The browsers that open the dashboard by a bookmark. */
  readonly browsers: string;
  /** What was reported to the owner, and which subjects are muted. */
  readonly events: string;
  /** Folders that belong to keybearer alone. The folder of a file named with --config is not one of them. */
  readonly own: readonly string[];
  /** What keybearer writes itself. No key is read from there. */
  readonly notKeys: readonly string[];
  /** The person's home folder, for `~/` in the configuration. */
  readonly home: string;
}

interface PathOptions {
  readonly config?: string | undefined;
  readonly env: NodeJS.ProcessEnv;
  readonly home: string;
}

export function findPaths(options: PathOptions): Paths {
  const { env, home } = options;
  const own = env.KEYBEARER_HOME ? resolve(env.KEYBEARER_HOME) : null;
  // The XDG specification says to ignore relative paths.
  const xdg = (name: string, fallback: string) => {
    const value = env[name];
    return value?.startsWith("/") ? value : fallback;
  };
  const folder = own ?? join(xdg("XDG_CONFIG_HOME", join(home, ".config")), "keybearer");
  const state = own
    ? join(own, "state")
    : join(xdg("XDG_STATE_HOME", join(home, ".local", "state")), "keybearer");
  const runtime = xdg("XDG_RUNTIME_DIR", "");
  const run = own ? join(own, "run") : runtime === "" ? join(state, "run") : join(runtime, "keybearer");
  const config = options.config === undefined ? join(folder, "config.yaml") : resolve(options.config);
  return {
    mode: "user",
    config,
    overrides: null,
    explicit: options.config !== undefined,
    run,
    socket: join(run, "control.sock"),
    ...stateFiles(state),
    own: [folder, state],
    notKeys: [config, state, run],
    home,
  };
}

/** The places of the system service. */
export interface SystemPlaces {
  /** Belongs to root. */
  readonly config: string;
  /** Belongs to the service's user: state, keys and overrides.yaml. */
  readonly data: string;
  /** Belongs to root: one socket for each owner, and one for root. */
  readonly sockets: string;
}

export const SYSTEM_PLACES: SystemPlaces = {
  config: "/etc/keybearer",
  data: "/var/lib/keybearer",
  sockets: "/run/keybearer",
};

/** The unit of the control socket of a user. */
export function socketUnitPath(user: string): string {
  return `/etc/systemd/system/keybearer-${user}.socket`;
}

/** The files of the system service, with the socket of this user. */
export function systemPaths(uid: number, places: SystemPlaces = SYSTEM_PLACES): Paths {
  const { data, sockets } = places;
  const config = join(places.config, "config.yaml");
  const state = join(data, "state");
  const run = join(data, "run");
  return {
    mode: "system",
    config,
    overrides: join(data, "overrides.yaml"),
    // Without a config.yaml there is nothing to serve: the sandbox is for a person.
    explicit: true,
    run,
    socket: join(sockets, `${uid}.sock`),
    ...stateFiles(state),
    own: [data],
    notKeys: [config, state, run, join(data, "overrides.yaml")],
    home: data,
  };
}

function stateFiles(state: string) {
  return {
    state,
    lock: join(state, "lock.db"),
    trust: join(state, "trust.json"),
    usage: join(state, "usage"),
    index: join(state, "index.db"),
    mirror: join(state, "mirror.db"),
    tokenUses: join(state, "token-uses.json"),
    otherModels: join(state, "other-models.json"),
    consoles: join(state, "consoles.json"),
    keyCalls: join(state, "key-calls.json"),
    keyChanges: join(state, "key-changes.json"),
    shared: join(state, "shared.json"),
    notifyQueue: join(state, "notify-queue.jsonl"),
    browsers: join(state, "browsers.json"),
    events: join(state, "events.jsonl"),
  };
}

/** Creates keybearer's folders. Returns what is wrong with them, such as that other users can write there. */
export function prepareFolders(paths: Paths): Problem[] {
  const problems: Problem[] = [];
  for (const folder of [paths.state, paths.run]) {
    try {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
    } catch (error) {
      problems.push({ problem: `cannot make the folder ${folder}: ${errorMessage(error)}`, next: null });
      continue;
    }
    const problem = folderProblem(folder);
    if (problem !== null) problems.push(problem);
  }
  for (const folder of paths.own) {
    const problem = folderProblem(folder);
    const isKnown = problems.some((known) => known.problem === problem?.problem);
    if (problem !== null && !isKnown) problems.push(problem);
  }
  return problems;
}

function folderProblem(folder: string): Problem | null {
  const found = statOrNull(folder);
  if (found === null) return null;
  if (isOtherUsers(found))
    return { problem: `${folder} belongs to another user`, next: "chown it, or use another folder" };
  if ((found.mode & 0o022) === 0) return null;
  return { problem: `other users can write to ${folder}`, next: `chmod 700 ${folder}` };
}

/** What is wrong with the owner or the mode of config.yaml; null: nothing. */
export function configModeProblem(file: string, mode: Mode): Problem | null {
  const found = statOrNull(file);
  if (found === null) return null;
  if (mode === "system") return systemConfigProblem(file, found);
  if (isOtherUsers(found))
    return { problem: `${file} belongs to another user`, next: "chown it, or make a copy of your own" };
  if ((found.mode & 0o077) === 0) return null;
  const verb = (found.mode & 0o022) === 0 ? "read" : "change";
  return { problem: `other users can ${verb} ${file}`, next: `chmod 600 ${file}` };
}

/** Root writes it, and the group of the service may read it. */
function systemConfigProblem(file: string, { uid, mode }: Stats): Problem | null {
  if (uid !== rootUid(readOrNull))
    return { problem: `${file} must belong to root`, next: `sudo chown root ${file}` };
  if ((mode & 0o037) === 0) return null;
  return { problem: `other users can open ${file}`, next: `sudo chmod 640 ${file}` };
}

/** Files of root are fine: root can read and write everything anyway. */
function isOtherUsers({ uid }: Stats): boolean {
  return uid !== process.getuid?.() && uid !== rootUid(readOrNull);
}

/**
 * The uid that root's files show. In a user namespace without root, which systemd's PrivateUsers= makes, it is the overflow
 * uid, which other users' files show too. The command line checks the same folders outside the namespace, and only root can
 * change their owner.
 */
export function rootUid(read: (file: string) => string | null): number {
  const map = read("/proc/self/uid_map");
  // Each line: the first number inside, the first outside, how many.
  if (map === null || map.trim() === "" || /^\s*0\s/m.test(map)) return 0;
  const overflow = Number.parseInt(read("/proc/sys/kernel/overflowuid") ?? "", 10);
  return Number.isNaN(overflow) ? 0 : overflow;
}

function readOrNull(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return null;
  }
}

function statOrNull(path: string): Stats | null {
  try {
    return statSync(path);
  } catch {
    return null;
  }
}
