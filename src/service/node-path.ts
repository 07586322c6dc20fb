import { join } from "node:path";

/** A path to put into a service, and what to know about it. */
export interface LastingPath {
  readonly path: string;
  /** Set where an upgrade takes this path away: what happens then, and what to type. */
  readonly warning: string | null;
}

/** What the file system says. */
export interface Looking {
  /** The path with every link in it resolved; null where there is nothing. */
  realpath(path: string): string | null;
}

interface Manager {
  readonly name: string;
  /** Matches where this version manager keeps one version of node. */
  readonly keeps: RegExp;
  /** Paths that lead to whichever version is in use, where the manager has one that works without a shell. */
  readonly stable?: (match: RegExpExecArray) => readonly string[];
}

/** Links that outlive an upgrade; taken when they lead to the very binary that runs now. */
const SYSTEM = [
  "/usr/bin/node",
  "/usr/local/bin/node",
  "/opt/homebrew/bin/node",
  "/opt/local/bin/node",
  "/snap/bin/node",
  "/run/current-system/sw/bin/node",
  "/home/linuxbrew/.linuxbrew/bin/node",
];

/**
 * The version managers, by where they keep node. A shim is never taken: it looks at the folder it is started in, and at
 * variables that only a shell has.
 */
const MANAGERS: readonly Manager[] = [
  {
    name: "Homebrew",
    keeps: /^(.*)\/Cellar\/(node(?:@\d+)?)\/[^/]+\/bin\/node$/,
    // A numbered formula has no link in bin, only one in opt.
    stable: ([, prefix, formula]) => [`${prefix}/opt/${formula}/bin/node`, `${prefix}/bin/node`],
  },
  { name: "nvm", keeps: /\/versions\/node\/v[^/]+\/bin\/node$/ },
  {
    name: "fnm",
    keeps: /^(.*)\/node-versions\/v[^/]+\/installation\/bin\/node$/,
    stable: ([, root]) => [`${root}/aliases/default/bin/node`],
  },
  { name: "volta", keeps: /\/tools\/image\/node\/[^/]+\/bin\/node$/ },
  {
    name: "mise",
    keeps: /^(.*\/(?:mise|rtx)\/installs\/node)\/[^/]+\/bin\/node$/,
    // Its aliases are links, which it moves at an upgrade.
    stable: ([path = "", root]) => aliasesOf(path).map((alias) => `${root}/${alias}/bin/node`),
  },
  { name: "asdf", keeps: /\/installs\/nodejs\/[^/]+\/bin\/node$/ },
  { name: "nodenv", keeps: /\/\.?nodenv\/versions\/[^/]+\/bin\/node$/ },
  { name: "n", keeps: /\/n\/versions\/node\/[^/]+\/bin\/node$/ },
  { name: "nodebrew", keeps: /^(.*\/\.nodebrew)\/node\/v[^/]+\/bin\/node$/, stable: currentIn },
  { name: "nvs", keeps: /^(.*\/\.nvs)\/(?:default|node\/[^/]+\/[^/]+)\/bin\/node$/, stable: defaultIn },
  { name: "proto", keeps: /\/\.proto\/tools\/node\/[^/]+\/(?:bin\/)?node$/ },
  { name: "Nix", keeps: /^\/nix\/store\/[^/]+\/bin\/node$/, stable: () => NIX_PROFILES },
];

const NIX_PROFILES = ["/run/current-system/sw/bin/node", "/nix/var/nix/profiles/default/bin/node"];

/** A shell's own folder of links, gone with the shell. */
const SHELL_ONLY = /\/fnm_multishells\//;

export function nodePath(execPath: string, looking: Looking): LastingPath {
  const real = looking.realpath(execPath) ?? execPath;
  const leadsHere = (path: string) => looking.realpath(path) === real;
  const manager = managerOf(real);
  const match = manager?.keeps.exec(real) ?? null;
  const stable = match === null ? [] : (manager?.stable?.(match) ?? []);
  const found = [...stable, ...SYSTEM].find(leadsHere);
  if (found !== undefined) return { path: found, warning: null };
  if (manager !== null) return { path: real, warning: goesAway(manager.name, real) };
  // A path of its own making stays as it was typed, links and all: whoever set the link moves it at an upgrade.
  return { path: SHELL_ONLY.test(execPath) ? real : execPath, warning: null };
}

/** Whose version of node this is, of the managers that keep several. */
export function managerNameOf(node: string): string | null {
  return managerOf(node)?.name ?? null;
}

function managerOf(real: string): Manager | null {
  return MANAGERS.find(({ keeps }) => keeps.test(real)) ?? null;
}

function goesAway(name: string, path: string): string {
  return `this node belongs to one version of ${name}: ${path}. when you remove that version, the service no longer starts; then, or after you change to another: keybearer service install`;
}

function aliasesOf(path: string): string[] {
  const major = /\/installs\/node\/(\d+)\.(\d+)/.exec(path);
  return major === null ? [] : ["lts", "latest", `${major[1]}`, `${major[1]}.${major[2]}`];
}

function currentIn([, root = ""]: RegExpExecArray): string[] {
  return [join(root, "current", "bin", "node")];
}

function defaultIn([, root = ""]: RegExpExecArray): string[] {
  return [join(root, "default", "bin", "node")];
}
