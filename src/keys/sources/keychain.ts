import { type ChildProcessByStdio, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { blotCredentials } from "../../secret.ts";
import { plain } from "../words.ts";
import { STOPPED } from "./command.ts";
import { MOST_BYTES, type SourceText } from "./file.ts";

/** One entry of the system's keychain (macOS) or Secret Service (Linux). */
export interface KeychainEntry {
  readonly service: string;
  readonly account: string;
}

export type KeychainRequest =
  | { readonly operation: "read" }
  /** Another key that is there already stays, unless it is to be replaced. */
  | { readonly operation: "store"; readonly key: string; readonly replace: boolean }
  | { readonly operation: "forget" };

export interface KeychainMeans {
  readonly env: NodeJS.ProcessEnv;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds until the keychain is asked no longer. */
  readonly limit: number;
}

export type KeychainAnswer =
  /** found: what a read found, null when there is no such entry. done: whether a change was made. */
  | { readonly ok: true; readonly found: string | null; readonly done: boolean }
  | { readonly ok: false; readonly reason: string };

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
    if (operation === "forget") return { done: await entry.deleteCredential() };
    const found = (await entry.getPassword()) ?? null;
    if (operation === "read") return { found };
    if (found === key) return { done: true };
    if (found !== null && !replace) return { done: false };
    await entry.setPassword(key);
    return (await entry.getPassword()) === key ? { done: true } : { fault: "it gave back something else" };
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
export async function readKeychain(entry: KeychainEntry, means: KeychainMeans): Promise<SourceText> {
  const answer = await askKeychain(entry, { operation: "read" }, means);
  if (!answer.ok) return answer;
  if (answer.found !== null) return { ok: true, text: answer.found, warning: null };
  return refuse(
    `the keychain has no entry ${nameOf(entry)}: \`keybearer tools rotate <tool>\` puts a tool's key there`,
  );
}

/** Never throws, and never says in a reason what the keychain holds. */
export async function askKeychain(
  entry: KeychainEntry,
  request: KeychainRequest,
  means: KeychainMeans,
): Promise<KeychainAnswer> {
  if (means.signal?.aborted) return refuse(STOPPED);
  const bus = sessionBus(means.env);
  if (!bus.ok) return bus;
  const library = findLibrary();
  if (library === null) return refuse(NO_LIBRARY);
  const passed = PASSED_ON.flatMap((name) => {
    const value = means.env[name];
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
    const { service, account } = entry;
    return await outcomeOf(child, JSON.stringify({ service, account, ...request }), means);
  } catch (error) {
    return refuse(cannotAsk(error));
  }
}

/** An entry as people read it in messages. */
export function nameOf({ service, account }: KeychainEntry): string {
  return plain(`${service}/${account}`);
}

const INSTEAD = "use file: or command: for this key";
const AGAIN = "then save config.yaml again, or send keybearer a SIGHUP";
const NO_LIBRARY = `the keychain cannot be reached: @napi-rs/keyring is not installed for ${process.platform} on ${process.arch}; install keybearer again with its optional packages, or ${INSTEAD}`;

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

function outcomeOf(child: Child, request: string, means: KeychainMeans): Promise<KeychainAnswer> {
  return new Promise((done) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const onAbort = () => end(refuse(STOPPED));
    const timer = setTimeout(() => end(refuse(tooLate(means.limit))), means.limit);

    function end(answer: KeychainAnswer): void {
      clearTimeout(timer);
      means.signal?.removeEventListener("abort", onAbort);
      // Does nothing to one that has ended. A window that asks for the password closes with it.
      child.kill("SIGKILL");
      child.stdout.destroy();
      child.stdin.destroy();
      done(answer);
    }
    means.signal?.addEventListener("abort", onAbort);
    child.once("error", (error) => end(refuse(cannotAsk(error))));
    child.stdout.on("error", () => undefined);
    child.stdout.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      length += chunk.length;
      if (length > 2 * MOST_BYTES)
        end(refuse("the entry in the keychain is larger than 64 KB: that is no key"));
    });
    child.once("close", () => end(judge(Buffer.concat(chunks).toString("utf8"))));
    // It may have died before it could be asked; its end says so.
    child.stdin.on("error", () => undefined);
    // Left open: when this process dies, its end tells the other.
    child.stdin.write(`${request}\n`);
  });
}

function judge(printed: string): KeychainAnswer {
  let answer: unknown = null;
  try {
    answer = JSON.parse(printed);
  } catch {
    // Nothing, or half of something: it did not get to its end.
  }
  if (typeof answer !== "object" || answer === null) return refuse("the keychain's library broke off");
  if ("fault" in answer) return refuse(whyNot(String(answer.fault)));
  const found = "found" in answer && typeof answer.found === "string" ? answer.found : null;
  return { ok: true, found, done: "done" in answer && answer.done === true };
}

/** The library has one code for all its errors, so its words are all there is to tell them apart by. */
const REASONS: readonly (readonly [RegExp, string])[] = [
  [/^library$/, NO_LIBRARY],
  [
    /dismissed|is ?locked|interaction is not allowed/i,
    `the keychain is locked, and its password was not given: unlock it, ${AGAIN}`,
  ],
  [
    /no result found|no default/i,
    `the keychain has no default collection to keep keys in: log in to the desktop once, or ${INSTEAD}`,
  ],
  [
    /not provided by any|ServiceUnknown|was not found|NameHasNoOwner/i,
    `no program on the session bus keeps secrets (such as gnome-keyring or KeePassXC): start one, or ${INSTEAD}`,
  ],
  [
    /failed to connect|autolaunch|NoServer|disconnected|address|socket/i,
    `the session bus does not answer, and without it no keychain: log in again, or ${INSTEAD}`,
  ],
  [
    /matched by|ambiguous/i,
    "the keychain has more than one entry of this name: delete the wrong one in its own program",
  ],
  [
    /denied|cancel|auth|not permitted/i,
    `the keychain refused keybearer: allow it when you are asked, ${AGAIN}`,
  ],
  [/utf-?8|encoding/i, "the entry in the keychain is not text: that is no key"],
];

function whyNot(words: string): string {
  const known = REASONS.find(([shape]) => shape.test(words));
  if (known !== undefined) return known[1];
  const [line = ""] = words.split(/[\r\n]/, 1);
  return `the keychain could not be asked (${plain(blotCredentials(line)).slice(0, 200)})`;
}

function tooLate(limit: number): string {
  return `the keychain did not answer within ${limit / 1000} s, as one that waits for its password: unlock it, ${AGAIN}`;
}

function cannotAsk(error: unknown): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
  return `the keychain could not be asked (${code} from ${plain(process.execPath)}): if Node was replaced meanwhile, start keybearer again`;
}

function refuse(reason: string): { readonly ok: false; readonly reason: string } {
  return { ok: false, reason };
}
