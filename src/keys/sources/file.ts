import { constants, type FileHandle, open, realpath, stat } from "node:fs/promises";
import { isAbsolute, relative, resolve, sep } from "node:path";
import { errorCode } from "../../core/errors.ts";
import { plain, shellWord } from "../words.ts";

/** What a source gave: its text with one final newline taken off, or why there is none. */
export type SourceText =
  | { readonly ok: true; readonly text: string; readonly warning: string | null }
  /** unasked: what asks the source is gone, as while keybearer is being replaced. That says nothing about the key. */
  | { readonly ok: false; readonly reason: string; readonly unasked?: boolean; readonly absent?: boolean };

/** No key is longer; whatever is longer is the wrong file, or a program gone wild. */
export const MOST_BYTES = 64 * 1024;

export interface FileRules {
  /** keybearer's own folders: a file that is written as lying in them was not asked about, so it must really lie there. */
  readonly home: readonly string[];
  /** Files and folders in which keybearer keeps its state: what is in them is no key, but may hold secrets. */
  readonly notKeys: readonly string[];
}

/** Reads a key file within so many milliseconds. */
export async function readKeyFile(path: string, rules: FileRules, limit: number): Promise<SourceText> {
  if (!isAbsolute(path)) return refuse(`file:${plain(path)} is not a full path: write it from / on`);
  let timer: NodeJS.Timeout | undefined;
  // A read from a network share that is gone never ends and cannot be called back; only the waiting can.
  const late = new Promise<SourceText>((done) => {
    timer = setTimeout(
      () => done(refuse(`${plain(path)} could not be read within ${limit / 1000} s`)),
      limit,
    );
  });
  try {
    return await Promise.race([readNow(path, rules), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Takes off the one newline that editors and `echo` put at the end. More than one is not theirs. */
export function withoutFinalNewline(text: string): string {
  return text.replace(/\r?\n$/, "");
}

/** Whether a path, as it is written, lies in one of the folders. */
export function liesIn(path: string, folders: readonly string[]): boolean {
  return folders.some((folder) => {
    const way = relative(resolve(folder), resolve(path));
    return way !== "" && way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
  });
}

async function readNow(path: string, { home, notKeys }: FileRules): Promise<SourceText> {
  let handle: FileHandle | null = null;
  try {
    // O_NONBLOCK: opening a fifo would otherwise wait for somebody to write into it.
    handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    const found = await handle.stat({ bigint: true });
    if (!found.isFile()) return refuse(`${plain(path)} is not a regular file`);
    // A second name could stand for a file that nobody was asked about.
    if (found.nlink > 1n)
      return refuse(`${plain(path)} has ${found.nlink} names (hard links): make a copy of it with one`);
    if (await isReallyIn(path, found, notKeys))
      return refuse(`${plain(path)} belongs to keybearer's own state: that is no key`);
    if (liesIn(path, home) && !(await isReallyIn(path, found, home))) {
      return refuse(
        `${plain(path)} is a link that leads out of keybearer's folder: write the path it leads to instead`,
      );
    }
    const buffer = Buffer.alloc(MOST_BYTES + 1);
    const length = await readUpTo(handle, buffer);
    if (length > MOST_BYTES) return refuse(`${plain(path)} is larger than 64 KB: that is no key`);
    const text = withoutFinalNewline(buffer.toString("utf8", 0, length));
    buffer.fill(0);
    return { ok: true, text, warning: warningOf(path, found.mode) };
  } catch (error) {
    return { ok: false, reason: whyNot(path, error), absent: isMissing(errorCode(error)) };
  } finally {
    await handle?.close().catch(() => undefined);
  }
}

async function readUpTo(handle: FileHandle, buffer: Buffer): Promise<number> {
  let length = 0;
  while (length < buffer.length) {
    const { bytesRead } = await handle.read(buffer, length, buffer.length - length, null);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  return length;
}

/**
 * Asked with the file already open, by its identity: a link that is turned around between a look at the path and
 * the reading of it does not get past.
 */
async function isReallyIn(
  path: string,
  opened: { readonly dev: bigint; readonly ino: bigint },
  home: readonly string[],
): Promise<boolean> {
  const real = await realpath(path);
  const there = await stat(real, { bigint: true });
  const folders = await Promise.all(home.map((folder) => realpath(folder).catch(() => folder)));
  const lies = liesIn(real, folders) || folders.includes(real);
  return lies && there.dev === opened.dev && there.ino === opened.ino;
}

function warningOf(path: string, mode: bigint): string | null {
  if ((mode & 0o077n) === 0n) return null;
  return `other users may open ${plain(path)}, which holds a key: chmod 600 ${plain(shellWord(path))}`;
}

function isMissing(code: string): boolean {
  return code === "ENOENT" || code === "ENOTDIR";
}

function whyNot(path: string, error: unknown): string {
  const code = errorCode(error);
  if (isMissing(code)) return `there is no file ${plain(path)}`;
  if (code === "EACCES" || code === "EPERM") {
    return `${plain(path)} may not be read by the user that runs keybearer: ls -l ${plain(shellWord(path))}`;
  }
  if (code === "ELOOP") return `${plain(path)} is a link that leads to itself`;
  return `${plain(path)} could not be read (${code})`;
}

function refuse(reason: string): SourceText {
  return { ok: false, reason };
}
