import { type LastingPath, type Looking, managerNameOf } from "./node-path.ts";

interface Keeper {
  /** Matches where it keeps one version of the package. */
  readonly keeps: RegExp;
  /** Paths that lead to whichever version is installed. */
  readonly stable: (match: RegExpExecArray) => readonly string[];
  readonly warning: string;
}

const AGAIN = "after an upgrade of keybearer: keybearer service install";

const KEEPERS: readonly Keeper[] = [
  {
    keeps: /\/_npx\/|\/dlx-[^/]+\/|\/dlx\/|\/bunx-/,
    stable: () => [],
    warning:
      "this keybearer lies in a cache that is cleared now and then, and with it the service would be gone. install it first: npm install -g keybearer",
  },
  {
    keeps: /^(.*)\/\.pnpm\/keybearer@[^/]+\/node_modules(\/keybearer\/.*)$/,
    // Its folder of versions lies beside node_modules for global packages, and inside it for all others.
    stable: ([, root, rest]) => [`${root}/node_modules${rest}`, `${root}${rest}`],
    warning: `pnpm keeps this keybearer in a folder of one version. ${AGAIN}`,
  },
  {
    keeps: /^(.*)\/Cellar\/keybearer\/[^/]+(\/.*)$/,
    stable: ([, prefix, rest]) => [`${prefix}/opt/keybearer${rest}`],
    warning: `Homebrew keeps this keybearer in a folder of one version. ${AGAIN}`,
  },
];

/** `dist/cli/main.js` by a path that outlives an upgrade, where there is one. */
export function packagePath(main: string, looking: Looking): LastingPath {
  const real = looking.realpath(main) ?? main;
  for (const { keeps, stable, warning } of KEEPERS) {
    const match = keeps.exec(real);
    if (match === null) continue;
    const found = stable(match).find((path) => looking.realpath(path) === real);
    return found === undefined ? { path: real, warning } : { path: found, warning: null };
  }
  return { path: real, warning: belongsToOneNode(real) };
}

/** npm installs a global package into the folder of the node it runs on. */
function belongsToOneNode(main: string): string | null {
  const root = /^(.*)\/lib\/node_modules\/keybearer\//.exec(main)?.[1];
  const manager = root === undefined ? null : managerNameOf(`${root}/bin/node`);
  if (manager === null) return null;
  return `this keybearer was installed for one version of node that ${manager} keeps. after you change to another: npm install -g keybearer, then keybearer service install`;
}
