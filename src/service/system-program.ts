import { constants, existsSync, lstatSync, readdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { appendFile, chmod, mkdir, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { LIBRARY, ROOT_COMMAND } from "../core/command-name.ts";
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

function programPlaces({ node, main }: Program, packageFolder: string) {
  return {
    files: [realpathSync(node), realpathSync(main), join(packageFolder, "package.json")],
    folders: [dirname(realpathSync(main)), packagesOf(packageFolder), join(packageFolder, "service")],
  };
}

/** Why this program cannot be that of the system service; null: it can. */
export function findProgramProblem(program: Program, packageFolder: string): string | null {
  const { files, folders } = programPlaces(program, packageFolder);
  const inHome = [...files, ...folders].find((path) => /^\/(?:home|root|run\/user)\//.test(path));
  // The service sees no home folder, also not that of root.
  if (inHome !== undefined) return `${inHome} is below a home folder, which the service does not see`;
  return findProgramChange(program, packageFolder);
}

/** Which user besides root could change the program; null: none. */
export function findProgramChange(program: Program, packageFolder: string): string | null {
  const { files, folders } = programPlaces(program, packageFolder);
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

function programIn(folder: string): Program {
  return { node: join(folder, "bin", "node"), main: join(folder, "package", "dist", "cli", "main.js") };
}

/** From where a copy was read, and with whose rights. */
export interface ProgramSource extends Program {
  readonly reader: string;
}

const SOURCE = join(LIBRARY, "source.json");

/** null: this program is no copy. */
export function findSource({ main }: Program): ProgramSource | null {
  if (!main.startsWith(`${LIBRARY}/`) || !existsSync(SOURCE)) return null;
  return JSON.parse(readFileSync(SOURCE, "utf8")) as ProgramSource;
}

/** A file of the program, and its name in a copy. */
export interface ProgramFile {
  readonly name: string;
  readonly path: string;
}

/** Every file that a copy needs. Links are followed, with the rights of the user who lists. */
export function* programFiles({ node, main }: Program, packageFolder: string): Generator<ProgramFile> {
  yield { name: "bin/node", path: realpathSync(node) };
  const dist = dirname(dirname(realpathSync(main)));
  const inside = "package";
  for (const name of ["package.json", "service", "LICENSE", "NOTICE"])
    yield* filesBelow(join(packageFolder, name), join(inside, name));
  yield* filesBelow(dist, join(inside, relative(packageFolder, dist)));
  const packages = packagesOf(packageFolder);
  for (const entry of existsSync(packages) ? readdirSync(packages) : [])
    if (join(packages, entry) !== packageFolder)
      yield* filesBelow(join(packages, entry), join(inside, "node_modules", entry));
}

function* filesBelow(path: string, name: string): Generator<ProgramFile> {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isFile()) yield { name, path };
  // Commands of packages are links that keybearer does not use.
  if (!found?.isDirectory() || basename(path) === ".bin") return;
  for (const entry of readdirSync(path)) yield* filesBelow(join(path, entry), join(name, entry));
}

/** A part of a file, as the user who reads the program sends it. */
export interface ProgramPart {
  readonly name: string;
  readonly data: Buffer;
}

/**
 * Writes a copy of the program to /usr/local, as root's, from what another process read with its user's rights: root opens no
 * file of that user. Throws; a problem: /usr/local is not root's alone, or the copy is not whole.
 */
export async function copyProgram(
  parts: AsyncIterable<ProgramPart>,
  source: ProgramSource,
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
  const staged = join(LIBRARY, "new");
  await rm(staged, { recursive: true, force: true });
  await mkdir(staged, { mode: 0o755 });
  try {
    for await (const { name, data } of parts) {
      const path = join(staged, ...namesIn(name));
      await mkdir(dirname(path), { recursive: true, mode: 0o755 });
      await appendFile(path, data, { mode: 0o644 });
    }
  } catch (error) {
    await rm(staged, { recursive: true, force: true });
    throw error;
  }
  const { node, main } = programIn(staged);
  if (!existsSync(node) || !existsSync(main)) {
    await rm(staged, { recursive: true, force: true });
    return { problem: "the program could not be read", next: null };
  }
  await setModes(staged);
  const target = freeFolder(staged);
  await rename(staged, target);
  const copied = programIn(target);
  await writeFile(`${SOURCE}.new`, JSON.stringify(source), { mode: 0o644 });
  await rename(`${SOURCE}.new`, SOURCE);
  const script = `#!/bin/sh\nexec "${copied.node}" "${copied.main}" "$@"\n`;
  await writeFile(`${ROOT_COMMAND}.new`, script, { mode: 0o755 });
  await chmod(`${ROOT_COMMAND}.new`, 0o755);
  await rename(`${ROOT_COMMAND}.new`, ROOT_COMMAND);
  return copied;
}

/** Named after the version. A copy that is in use is not replaced: the service may start from it at any moment. */
function freeFolder(staged: string): string {
  const text = readFileSync(join(staged, "package", "package.json"), "utf8");
  const { version } = JSON.parse(text) as { readonly version?: unknown };
  const name = typeof version === "string" && /^\d[\w.+-]*$/.test(version) ? version : "unknown";
  for (let number = 1; ; number += 1) {
    const folder = join(LIBRARY, number === 1 ? name : `${name}-${number}`);
    if (!existsSync(folder)) return folder;
  }
}

/** Removes the copies that neither the service nor root's command runs any more. */
export async function removeOldCopies({ main }: Program): Promise<void> {
  if (!main.startsWith(`${LIBRARY}/`)) return;
  for (const entry of readdirSync(LIBRARY, { withFileTypes: true })) {
    const folder = join(LIBRARY, entry.name);
    if (entry.isDirectory() && !main.startsWith(`${folder}/`)) await rm(folder, { recursive: true });
  }
}

/** The sender is not trusted with where root writes: the names lead nowhere but down. */
export function namesIn(path: string): string[] {
  const names = path.split("/");
  if (names.some((name) => name === "" || name === "." || name === ".." || name.includes("\0")))
    throw new Error(`a file of the program has an unusable name: ${JSON.stringify(path)}`);
  return names;
}

/** Root made the files, so they are root's, and everyone may read them, whatever root's umask is. */
async function setModes(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await setModes(path);
    else await chmod(path, entry.name === "node" ? 0o755 : 0o644);
  }
}
