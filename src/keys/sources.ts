import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { constants, type FileHandle, open, realpath, stat } from "node:fs/promises";
import { isAbsolute, join, relative, resolve, sep } from "node:path";
import type { Readable } from "node:stream";
import { stripVTControlCharacters } from "node:util";
import { describeSource, type KeySource } from "../config/schema.ts";
import { escapeControlChars, type Failed, failed, quoteForShell } from "../core/display.ts";
import { errorCode, hasCode } from "../core/errors.ts";
import { redactCredentials } from "../core/redact.ts";
import { keyProblem, Secret } from "../core/secret.ts";
import { withTimeout } from "../core/timeout.ts";
import {
  askKeychain,
  entryName,
  foreignEntry,
  type KeychainEntry,
  MAX_KEY_BYTES,
  STOPPED,
} from "./keychain.ts";

export interface ReadDeps {
  /** For env:, for commands, and to find the keychain. */
  readonly env: NodeJS.ProcessEnv;
  /** Variables that a command must not see, because they hold keys of other tools. Default none. */
  readonly withhold?: readonly string[] | undefined;
  /** keybearer's own folders: a file: inside them was not confirmed, so it must really be there. Default none. */
  readonly home?: readonly string[] | undefined;
  /** keybearer's own files and folders, which hold no keys but may hold secrets. Default none. */
  readonly notKeys?: readonly string[] | undefined;
  /** Stops a command or a keychain request whose result is no longer needed. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds. Default 10 s. */
  readonly limit?: number | undefined;
  /** A person chose it, so no rule says what it looks like. Default false: it is a key. */
  readonly password?: boolean | undefined;
}

export type KeyReading =
  /** A key with a warning can be used, such as one in a file that others may open. */
  { readonly ok: true; readonly key: Secret; readonly warning: string | null } | NotRead;

interface NotRead extends Failed {
  /** The source was not asked, for example because keybearer is being replaced. That says nothing about the key. */
  readonly unasked?: boolean;
  /** There is nothing at the source, or no key: a new key belongs there. */
  readonly absent?: boolean;
}

/** The text of a source without its final newline. */
type SourceText = { readonly ok: true; readonly text: string; readonly warning: string | null } | NotRead;

const DEFAULT_LIMIT = 10_000;

/** Reads a key from its source. Never throws. No problem contains the key. */
export async function readKey(source: KeySource, deps: ReadDeps): Promise<KeyReading> {
  const { env, limit = DEFAULT_LIMIT } = deps;
  const check = deps.password === true ? checkPassword : checkKey;
  switch (source.kind) {
    case "literal":
      // The parser has checked it, where its line can be shown.
      return { ok: true, key: source.secret, warning: null };
    case "env":
      return check(source, readVariable(source.name, env));
    case "file":
      return check(source, await readKeyFile(source.path, deps, limit));
    case "credential":
      return check(source, await readCredential(source.name, deps, limit));
    case "command":
      return check(source, await runKeyCommand(source.argv, deps, limit));
    case "keychain":
      return check(source, await readKeychain(source, deps, limit));
  }
}

function checkPassword(source: KeySource, found: SourceText): KeyReading {
  if (!found.ok) return found;
  if (!/[\r\n]/.test(found.text)) return { ok: true, key: new Secret(found.text), warning: found.warning };
  return failed(`the password contains a line break (from ${escapeControlChars(describeSource(source))})`);
}

function checkKey(source: KeySource, found: SourceText): KeyReading {
  if (!found.ok) return found;
  const incomplete = keyProblem(found.text);
  if (incomplete === null) return { ok: true, key: new Secret(found.text), warning: found.warning };
  const problem = `incomplete key: ${incomplete} (from ${escapeControlChars(describeSource(source))})`;
  return { ...failed(problem), absent: true };
}

function readVariable(name: string, env: NodeJS.ProcessEnv): SourceText {
  const text = Object.hasOwn(env, name) ? env[name] : undefined;
  if (text !== undefined && text !== "") return { ok: true, text, warning: null };
  const state = text === undefined ? "not set" : "empty";
  return failed(
    `the variable ${name} is ${state} in keybearer's environment: a service does not get the variables of your shell, so use file: or command: there`,
  );
}

/** systemd has decrypted it, and only this service and root can read it. */
async function readCredential(name: string, deps: ReadDeps, limit: number): Promise<SourceText> {
  const folder = deps.env.CREDENTIALS_DIRECTORY;
  if (folder === undefined || !isAbsolute(folder))
    return failed(
      `there is no credential ${name}: systemd gives this service none`,
      `LoadCredentialEncrypted=${name}:/etc/credstore.encrypted/${name} in a drop-in of its unit`,
    );
  const read = await readKeyFile(join(folder, name), {}, limit);
  // systemd makes the file readable by its group, or by an access list that shows as its group's mode.
  return read.ok ? { ...read, warning: null } : read;
}

async function readKeychain(
  entry: KeychainEntry,
  { env, signal }: ReadDeps,
  limit: number,
): Promise<SourceText> {
  const foreign = foreignEntry(entry);
  if (foreign !== null) return failed(foreign);
  const answer = await askKeychain(entry, { operation: "read" }, { env, signal, limit });
  if (!answer.ok) return answer;
  if (answer.found !== null) return { ok: true, text: answer.found, warning: null };
  return { ...failed(`the keychain has no entry ${entryName(entry)}`), absent: true };
}

/** Removes the one newline that editors and `echo` add. A second one is not theirs. */
function withoutFinalNewline(text: string): string {
  return text.replace(/\r?\n$/, "");
}

// file:

type FileRules = Pick<ReadDeps, "home" | "notKeys">;

export async function readKeyFile(path: string, rules: FileRules, limit: number): Promise<SourceText> {
  if (!isAbsolute(path))
    return failed(
      `file:${escapeControlChars(path)} is not an absolute path`,
      "write the whole path, from the first /",
    );
  // A read from a network share that is gone never ends and cannot be canceled; only the wait for it can end.
  const late = failed(`${escapeControlChars(path)} could not be read within ${limit / 1000} s`);
  return withTimeout(readFileNow(path, rules), limit, late);
}

/** Whether a path, as it is written, is inside one of the folders. */
export function isInside(path: string, folders: readonly string[]): boolean {
  return folders.some((folder) => {
    const way = relative(resolve(folder), resolve(path));
    return way !== "" && way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
  });
}

async function readFileNow(path: string, { home = [], notKeys = [] }: FileRules): Promise<SourceText> {
  const shown = escapeControlChars(path);
  let handle: FileHandle | null = null;
  try {
    // O_NONBLOCK: opening a named pipe would otherwise wait for its writer.
    handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    const found = await handle.stat({ bigint: true });
    if (!found.isFile()) return failed(`${shown} is not a regular file`);
    // Another name could stand for a file that was not confirmed.
    if (found.nlink > 1n) return failed(`${shown} has ${found.nlink} hard links`, "make a copy that has one");
    if (await isReallyInside(path, found, notKeys))
      return failed(`${shown} is in keybearer's state folder, so it is not a key`);
    if (isInside(path, home) && !(await isReallyInside(path, found, home)))
      return failed(`${shown} is a link to a place outside keybearer's folder`, "write that path instead");
    const buffer = Buffer.alloc(MAX_KEY_BYTES + 1);
    const length = await readUpTo(handle, buffer);
    if (length > MAX_KEY_BYTES) return failed(`${shown} is larger than 64 KB, so it is not a key`);
    const text = withoutFinalNewline(buffer.toString("utf8", 0, length));
    buffer.fill(0);
    const isPrivate = (found.mode & 0o077n) === 0n;
    const warning = `other users can open ${shown}, which contains a key: chmod 600 ${escapeControlChars(quoteForShell(path))}`;
    return { ok: true, text, warning: isPrivate ? null : warning };
  } catch (error) {
    return { ...failed(fileProblem(path, error)), absent: hasCode(error, "ENOENT", "ENOTDIR") };
  } finally {
    // It was only read, so a failed close loses nothing.
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

/** Compares with the open file, so that a link that is changed between the check and the read does not pass. */
async function isReallyInside(
  path: string,
  opened: { readonly dev: bigint; readonly ino: bigint },
  folders: readonly string[],
): Promise<boolean> {
  const real = await realpath(path);
  const found = await stat(real, { bigint: true });
  const realFolders = await Promise.all(folders.map((folder) => realpath(folder).catch(() => folder)));
  const isThere = isInside(real, realFolders) || realFolders.includes(real);
  return isThere && found.dev === opened.dev && found.ino === opened.ino;
}

function fileProblem(path: string, error: unknown): string {
  const shown = escapeControlChars(path);
  const code = errorCode(error);
  switch (code) {
    case "ENOENT":
    case "ENOTDIR":
      return `there is no file ${shown}`;
    case "EACCES":
    case "EPERM":
      return `the user that runs keybearer may not read ${shown}: ls -l ${escapeControlChars(quoteForShell(path))}`;
    case "ELOOP":
      return `${shown} is a link to itself`;
    default:
      return `${shown} could not be read (${code})`;
  }
}

// command:

type Argv = readonly [string, ...string[]];
type Child = ChildProcessByStdio<null, Readable, Readable>;

/** How long output may arrive after the program has ended, if a process that it left behind holds the pipe. */
const LATE_OUTPUT_MS = 250;
const MAX_STDERR_BYTES = 8 * 1024;
const MAX_SHOWN = 200;

/** Runs a program without a shell. Its output is the key. */
async function runKeyCommand(argv: Argv, deps: ReadDeps, limit: number): Promise<SourceText> {
  const [program] = argv;
  const { withhold = [], signal } = deps;
  if (!isAbsolute(program)) {
    const shown = escapeControlChars(program);
    // Found through PATH, another program of that name could take its place.
    return failed(`the command ${shown} is not an absolute path`, `command -v ${shown} prints it`);
  }
  if (signal?.aborted) return failed(STOPPED);
  const env = Object.fromEntries(Object.entries(deps.env).filter(([name]) => !withhold.includes(name)));
  try {
    const child = spawn(program, argv.slice(1), {
      // Not where keybearer was started: programs read settings from their folder.
      cwd: "/",
      env,
      // Its own process group, so that whatever it starts can be ended with it.
      detached: true,
      shell: false,
      stdio: ["ignore", "pipe", "pipe"],
    });
    // Throws if it could not start. Before anything else, because without file descriptors there are no pipes.
    await once(child, "spawn");
    return await commandOutput(child, program, limit, signal);
  } catch (error) {
    // Also thrown for an argument with a zero byte. Node's message quotes it, so only the code is used.
    return failed(startProblem(program, error));
  }
}

function commandOutput(
  child: Child,
  program: string,
  limit: number,
  signal: AbortSignal | undefined,
): Promise<SourceText> {
  const shown = escapeControlChars(program);
  return new Promise((done) => {
    const stdout = new Output(child.stdout, MAX_KEY_BYTES);
    const stderr = new Output(child.stderr, MAX_STDERR_BYTES);
    let lateOutput: NodeJS.Timeout | undefined;
    let isOver = false;
    const onAbort = () => end(failed(STOPPED));
    const timeout = setTimeout(() => {
      end(failed(`${shown} did not finish within ${limit / 1000} s and was ended`));
    }, limit);

    function end(result: SourceText): void {
      if (isOver) return;
      isOver = true;
      clearTimeout(timeout);
      clearTimeout(lateOutput);
      signal?.removeEventListener("abort", onAbort);
      if (!result.ok) killGroup(child);
      // The pipes may stay open for days, held by a process that left the group.
      child.stdout.destroy();
      child.stderr.destroy();
      done(result);
    }
    const finish = () => end(commandResult(child, program, stdout.text(), stderr.text()));

    stdout.onTooMuch = () => end(failed(`${shown} printed more than 64 KB, so it is not a key`));
    signal?.addEventListener("abort", onAbort);
    // A signal that was aborted while the program started does not fire again.
    if (signal?.aborted) onAbort();
    child.once("error", (error) => end(failed(startProblem(program, error))));
    child.once("close", finish);
    child.once("exit", () => {
      // setImmediate runs after the pipes were read, so a busy moment cuts off nothing that is already in them.
      if (!isOver) lateOutput = setTimeout(() => setImmediate(finish), LATE_OUTPUT_MS);
    });
  });
}

/** Keeps the first bytes of a stream and discards the rest, so that the writer does not stall. */
class Output {
  onTooMuch = () => {};
  readonly #chunks: Buffer[] = [];
  #left: number;

  constructor(stream: Readable, max: number) {
    this.#left = max;
    stream.on("data", (chunk: Buffer) => this.#add(chunk));
    // The end of the program decides, not the state of its pipes.
    stream.on("error", () => undefined);
  }

  text(): string {
    return Buffer.concat(this.#chunks).toString("utf8");
  }

  #add(chunk: Buffer): void {
    const isTooMuch = chunk.length > this.#left;
    if (this.#left > 0) this.#chunks.push(chunk.subarray(0, this.#left));
    this.#left = Math.max(0, this.#left - chunk.length);
    if (isTooMuch) this.onTooMuch();
  }
}

function commandResult(child: Child, program: string, stdout: string, stderr: string): SourceText {
  if (child.exitCode === 0) return { ok: true, text: withoutFinalNewline(stdout), warning: null };
  const how =
    child.exitCode === null ? `was ended by ${child.signalCode}` : `failed with exit code ${child.exitCode}`;
  const complaint = firstLine(stderr, stdout);
  return failed(`${escapeControlChars(program)} ${how}${complaint === "" ? "" : `: ${complaint}`}`);
}

/** The command's own message, without what may be a secret in it. */
function firstLine(stderr: string, stdout: string): string {
  const line = stripVTControlCharacters(stderr.trimStart()).split(/[\r\n]/, 1)[0] ?? "";
  const printed = stdout.split(/\s+/).filter((word) => word.length >= 8);
  const withoutOutput = printed.reduce((text, word) => text.replaceAll(word, "[redacted]"), line);
  // Redacted before it is cut: half a secret no longer has the shape of one.
  const shown = escapeControlChars(redactCredentials(withoutOutput)).trim();
  return shown.length > MAX_SHOWN ? `${shown.slice(0, MAX_SHOWN)}…` : shown;
}

function killGroup(child: Child): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, "SIGKILL");
  } catch {
    // The whole group has ended already.
  }
}

function startProblem(program: string, error: unknown): string {
  const shown = escapeControlChars(program);
  const code = errorCode(error);
  if (code === "ENOENT") return `there is no program ${shown}`;
  if (code === "EACCES") return `the user that runs keybearer may not run ${shown}`;
  return `${shown} could not be started (${code})`;
}
