import { type ChildProcessByStdio, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { errorCode } from "../../core/errors.ts";
import { plain } from "../words.ts";
import { STOPPED } from "./command.ts";
import { MOST_BYTES, type SourceText } from "./file.ts";
import { INSTEAD, NO_LIBRARY, tooLate, whyNot } from "./keychain-words.ts";

/** One entry of the system's keychain (macOS) or Secret Service (Linux). */
export interface KeychainEntry {
  readonly service: string;
  readonly account: string;
}

export type KeychainRequest =
  | { readonly operation: "read" }
  /** Another key that is there already stays, unless it is to be replaced. */
  | { readonly operation: "store"; readonly key: string; readonly replace: boolean }
  | { readonly operation: "forget" }
  /** Whether a key could be stored: something that is none is, and is taken away again. */
  | { readonly operation: "trial" };

export interface KeychainDeps {
  readonly env: NodeJS.ProcessEnv;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until the keychain is asked no longer. */
  readonly limit: number;
}

export type KeychainAnswer =
  /** found: what a read found, null when there is no such entry. done: it is as wished. made: it was not before. */
  | { readonly ok: true; readonly found: string | null; readonly done: boolean; readonly made: boolean }
  /** unasked: it was not the keychain that refused; keybearer or its node could not get as far. */
  | { readonly ok: false; readonly reason: string; readonly unasked?: boolean };

type Child = ChildProcessByStdio<Writable, Readable, null>;

/**
 * Run by a process of its own, as it stands: a file would have another name before and after the build.
 *
 * A locked keychain waits for a person, and the library waits in the thread pool, where it cannot be called back: four
 * such reads, and no file is read and no name looked up in the whole daemon. A process can be killed.
 *
 * The Secret Service is insisted on: without one, the library falls back to the kernel's keyring, which says "no such
 * entry" for every key and forgets what it is given at the next start of the machine.
 */
const PROGRAM = `
  // Without a listener it opens a debugger on a port that every user of this machine can connect to.
  process.on("SIGUSR1", () => {});
  const tell = (answer) => process.stdout.write(JSON.stringify(answer), () => process.exit(0));
  const words = (error) => String(error && error.message);
  async function work({ service, account, operation, key, replace }) {
    let library;
    try {
      library = require(process.argv[1]);
    } catch {
      return { fault: "library" };
    }
    const entry = new library.AsyncEntry(service, account, { linux: { store: "secret-service" } });
    if (operation === "trial") await entry.setPassword("trial");
    if (operation === "forget" || operation === "trial") return { done: await entry.deleteCredential() };
    const found = (await entry.getPassword()) ?? null;
    if (operation === "read") return { found };
    if (found === key) return { done: true };
    if (found !== null && !replace) return { done: false };
    await entry.setPassword(key);
    return (await entry.getPassword()) === key ? { done: true, made: true } : { fault: "it gave back something else" };
  }
  let asked = "";
  process.stdin.setEncoding("utf8");
  process.stdin.on("data", (piece) => {
    asked += piece;
    if (asked.endsWith("\\n")) work(JSON.parse(asked)).then(tell, (error) => tell({ fault: words(error) }));
  });
  // Whoever asked is gone. An exit would wait for the library.
  process.stdin.on("end", () => process.kill(process.pid, "SIGKILL"));
`;

/** What finding the keychain takes. Nothing else: the environment may hold keys, and options for Node. */
const PASSED_ON = ["HOME", "USER", "LOGNAME", "PATH", "TMPDIR", "XDG_RUNTIME_DIR", "SECURITYSESSIONID"];

/** Reads an entry as a source of a key. */
export async function readKeychain(entry: KeychainEntry, deps: KeychainDeps): Promise<SourceText> {
  const answer = await askKeychain(entry, { operation: "read" }, deps);
  if (!answer.ok) return answer;
  if (answer.found !== null) return { ok: true, text: answer.found, warning: null };
  const reason = `the keychain has no entry ${nameOf(entry)}: \`keybearer tools rotate <tool>\` puts a tool's key there`;
  return { ok: false, reason, absent: true };
}

/** Never throws, and never says in a reason what the keychain holds. */
export async function askKeychain(
  entry: KeychainEntry,
  request: KeychainRequest,
  deps: KeychainDeps,
): Promise<KeychainAnswer> {
  if (deps.signal?.aborted) return refuse(STOPPED);
  const bus = sessionBus(deps.env);
  if (!bus.ok) return bus;
  const library = findLibrary();
  if (library === null) return unasked(NO_LIBRARY);
  const passed = PASSED_ON.flatMap((name) => {
    const value = deps.env[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  const env = { ...Object.fromEntries(passed), ...bus.env };
  try {
    const child = spawn(process.execPath, ["-e", PROGRAM, library], {
      cwd: "/",
      env,
      // Ctrl-C is for whoever asked, who ends this one if it must be: a key that is being stored is stored whole.
      detached: true,
      stdio: ["pipe", "pipe", "ignore"],
    });
    return await outcomeOf(child, entry, request, deps);
  } catch (error) {
    return unasked(cannotAsk(error));
  }
}

/** An entry as people read it in messages. */
export function nameOf({ service, account }: KeychainEntry): string {
  return plain(`${service}/${account}`);
}

type Bus =
  | { readonly ok: true; readonly env: Readonly<Record<string, string>> }
  | { readonly ok: false; readonly reason: string };

/** Where the Secret Service is asked. The systems that have a keychain of their own need no bus. */
export function sessionBus(env: NodeJS.ProcessEnv): Bus {
  if (process.platform === "darwin" || process.platform === "win32") return { ok: true, env: {} };
  const named = env.DBUS_SESSION_BUS_ADDRESS;
  if (named !== undefined && named !== "") return { ok: true, env: { DBUS_SESSION_BUS_ADDRESS: named } };
  // Where systemd puts it. A login by ssh has the folder, but not always the variable.
  const socket = env.XDG_RUNTIME_DIR ? join(env.XDG_RUNTIME_DIR, "bus") : null;
  if (socket !== null && existsSync(socket)) {
    return { ok: true, env: { DBUS_SESSION_BUS_ADDRESS: `unix:path=${encodeURI(socket)}` } };
  }
  return refuse(
    `there is no session bus here (DBUS_SESSION_BUS_ADDRESS is not set), and without one no keychain: ${INSTEAD}`,
  );
}

/** Looked for only now: whoever has no key in the keychain does not need it. */
function findLibrary(): string | null {
  try {
    return createRequire(import.meta.url).resolve("@napi-rs/keyring");
  } catch {
    return null;
  }
}

function outcomeOf(
  child: Child,
  { service, account }: KeychainEntry,
  request: KeychainRequest,
  deps: KeychainDeps,
): Promise<KeychainAnswer> {
  const { operation } = request;
  return new Promise((done) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const onAbort = () => end(refuse(STOPPED));
    const timer = setTimeout(() => end(refuse(tooLate(deps.limit, operation))), deps.limit);

    function end(answer: KeychainAnswer): void {
      clearTimeout(timer);
      deps.signal?.removeEventListener("abort", onAbort);
      // Does nothing to one that has ended. A window that asks for the password closes with it.
      child.kill("SIGKILL");
      child.stdout.destroy();
      child.stdin.destroy();
      done(answer);
    }
    deps.signal?.addEventListener("abort", onAbort);
    child.once("error", (error) => end(unasked(cannotAsk(error))));
    child.stdout.on("error", () => undefined);
    child.stdout.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      length += chunk.length;
      if (length > 2 * MOST_BYTES)
        end(refuse("the entry in the keychain is larger than 64 KB: that is no key"));
    });
    child.once("close", () => end(judge(Buffer.concat(chunks).toString("utf8"), operation)));
    // It may have died before it could be asked; its end says so.
    child.stdin.on("error", () => undefined);
    // Left open: when this process dies, its end tells the other.
    child.stdin.write(`${JSON.stringify({ service, account, ...request })}\n`);
  });
}

function judge(printed: string, operation: KeychainRequest["operation"]): KeychainAnswer {
  let answer: unknown = null;
  try {
    answer = JSON.parse(printed);
  } catch {
    // Nothing, or half of something: it did not get to its end.
  }
  if (typeof answer !== "object" || answer === null) return unasked("the keychain's library broke off");
  if ("fault" in answer) {
    const reason = whyNot(String(answer.fault), operation);
    return reason === NO_LIBRARY ? unasked(reason) : refuse(reason);
  }
  const found = "found" in answer && typeof answer.found === "string" ? answer.found : null;
  const is = (name: string) => Object.entries(answer).some(([key, value]) => key === name && value === true);
  return { ok: true, found, done: is("done"), made: is("made") };
}

function cannotAsk(error: unknown): string {
  return `the keychain could not be asked (${errorCode(error)} from ${plain(process.execPath)}): if Node was replaced meanwhile, start keybearer again`;
}

function refuse(reason: string): { readonly ok: false; readonly reason: string } {
  return { ok: false, reason };
}

function unasked(reason: string): KeychainAnswer {
  return { ok: false, reason, unasked: true };
}
