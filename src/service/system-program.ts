import { constants, existsSync, lstatSync, readdirSync, realpathSync } from "node:fs";
import { chmod, copyFile, cp, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import type { Problem } from "../core/display.ts";
import { errorMessage } from "../core/errors.ts";

/*
 * The program of the system service: node, keybearer and its packages. Whoever could change one of these files could read the
 * keys, so all of them belong to root.
 */

export interface Program {
  readonly node: string;
  readonly main: string;
}

const LIBRARY = "/usr/local/lib/keybearer";
export const ROOT_COMMAND = "/usr/local/bin/keybearer";

/** Which user besides root could change a file, because of it or of a folder above it; null: none. */
export function findChangeable(path: string): string | null {
  for (let at = path; ; at = dirname(at)) {
    const problem = entryProblem(at);
    if (problem !== null || at === dirname(at)) return problem;
  }
}

function entryProblem(path: string): string | null {
  try {
    const found = lstatSync(path);
    if (found.uid !== 0) return `${path} does not belong to root`;
    // The mode of a link means nothing, and in a sticky folder nobody replaces what belongs to root.
    const isProtected =
      found.isSymbolicLink() || (found.mode & constants.S_IWGRP) + (found.mode & constants.S_IWOTH) === 0;
    const isSticky = found.isDirectory() && (found.mode & 0o1000) !== 0;
    return isProtected || isSticky ? null : `other users can write to ${path}`;
  } catch (error) {
    return `${path} cannot be checked: ${errorMessage(error)}`;
  }
}

/** The same for everything below a folder. */
function findChangeableBelow(folder: string): string | null {
  const above = findChangeable(folder);
  if (above !== null) return above;
  const waiting = [folder];
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    for (const entry of readdirSync(at, { withFileTypes: true })) {
      const path = join(at, entry.name);
      const problem =
        entryProblem(path) ?? (entry.isSymbolicLink() ? findChangeable(realpathSync(path)) : null);
      if (problem !== null) return problem;
      if (entry.isDirectory()) waiting.push(path);
    }
  }
  return null;
}

/** Where a package's own packages are: inside it, or beside it if they are shared with others. */
function packagesOf(packageFolder: string): string {
  const inside = join(packageFolder, "node_modules");
  return existsSync(inside) || basename(dirname(packageFolder)) !== "node_modules"
    ? inside
    : dirname(packageFolder);
}

/** Why this program cannot be that of the system service; null: only root can change it. */
export function findProgramProblem({ node, main }: Program, packageFolder: string): string | null {
  const files = [realpathSync(node), realpathSync(main), join(packageFolder, "package.json")];
  const folders = [dirname(realpathSync(main)), packagesOf(packageFolder), join(packageFolder, "service")];
  const inHome = [...files, ...folders].find((path) => /^\/(?:home|root|run\/user)\//.test(path));
  // The service sees no home folder, also not that of root.
  if (inHome !== undefined) return `${inHome} is below a home folder, which the service does not see`;
  for (const file of files) {
    const problem = findChangeable(file);
    if (problem !== null) return problem;
  }
  for (const folder of folders) {
    const problem = existsSync(folder) ? findChangeableBelow(folder) : null;
    if (problem !== null) return problem;
  }
  return null;
}

/** Where a copy of this version is. */
export function copiedProgram(version: string): Program {
  const folder = join(LIBRARY, version);
  return { node: join(folder, "bin", "node"), main: join(folder, "package", "dist", "cli", "main.js") };
}

/**
 * Copies node, keybearer and its packages to /usr/local, as root's. A copy that is there already is used. Throws; a problem:
 * /usr/local is not root's alone.
 */
export async function copyProgram(
  { node, main }: Program,
  packageFolder: string,
  version: string,
): Promise<Program | Problem> {
  await mkdir(LIBRARY, { recursive: true, mode: 0o755 });
  for (const folder of [LIBRARY, dirname(ROOT_COMMAND)]) {
    const problem = findChangeable(folder);
    if (problem !== null)
      return {
        problem: `${problem}, so the program cannot be kept there`,
        next: `chown root:root, and chmod go-w`,
      };
  }
  const copied = copiedProgram(version);
  const target = join(LIBRARY, version);
  const staged = `${target}.new`;
  await rm(staged, { recursive: true, force: true });
  const inside = join(staged, "package");
  await mkdir(join(staged, "bin"), { recursive: true, mode: 0o755 });
  await copyFile(realpathSync(node), join(staged, "bin", "node"));
  const dist = dirname(dirname(realpathSync(main)));
  for (const name of ["package.json", "service", "LICENSE", "NOTICE"])
    if (existsSync(join(packageFolder, name)))
      await cp(join(packageFolder, name), join(inside, name), { recursive: true, dereference: true });
  await cp(dist, join(inside, relative(packageFolder, dist)), { recursive: true, dereference: true });
  const packages = packagesOf(packageFolder);
  await cp(packages, join(inside, "node_modules"), {
    recursive: true,
    dereference: true,
    filter: (path) => path !== packageFolder && basename(path) !== ".bin",
  });
  await makeRoots(staged);
  await rm(target, { recursive: true, force: true });
  await rename(staged, target);
  const script = `#!/bin/sh\nexec "${copied.node}" "${copied.main}" "$@"\n`;
  await writeFile(`${ROOT_COMMAND}.new`, script, { mode: 0o755 });
  await chmod(`${ROOT_COMMAND}.new`, 0o755);
  await rename(`${ROOT_COMMAND}.new`, ROOT_COMMAND);
  return copied;
}

/** Root made the files, so they are root's; the modes are the owner's. */
async function makeRoots(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await makeRoots(path);
    else await chmod(path, entry.name === "node" ? 0o755 : 0o644);
  }
}
