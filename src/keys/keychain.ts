import { type ChildProcessByStdio, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { escapeControlChars, type Failed, failed, type Problem } from "../core/display.ts";
import { errorCode } from "../core/errors.ts";
import { parseObject, textAt } from "../core/json.ts";
import { redactCredentials } from "../core/redact.ts";

/** No key is longer. Anything longer is the wrong file or entry, or a program that does not stop printing. */
export const MAX_KEY_BYTES = 64 * 1024;

export const STOPPED = "the key was not read, because the configuration changed";

/** An entry of the system's keychain (macOS) or Secret Service (Linux). */
export interface KeychainEntry {
  readonly service: string;
  readonly account: string;
}

type KeychainRequest =
  | { readonly operation: "read" }
  /** Without `replace` another key that is there already stays. */
  | { readonly operation: "store"; readonly key: string; readonly replace: boolean }
  | { readonly operation: "forget" }
  /** Whether a key could be stored: stores something else and removes it again. */
  | { readonly operation: "trial" };

interface KeychainDeps {
  readonly env: NodeJS.ProcessEnv;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds. */
  readonly limit: number;
}

type KeychainAnswer =
  | {
      readonly ok: true;
      /** The result of a read; null: there is no such entry. */
      readonly found: string | null;
      /** The entry is now as requested. */
      readonly done: boolean;
      /** It was not so before. */
      readonly made: boolean;
    }
  /** unasked: the request did not reach the keychain. */
  | (Failed & { readonly unasked?: boolean });

type Operation = KeychainRequest["operation"];
type Child = ChildProcessByStdio<Writable, Readable, null>;

/**
 * Runs in a process of its own. A locked keychain waits for a person, and the library waits in the thread pool, where it
 * cannot be canceled: after four such reads the daemon could read no file and look up no name. A process can be killed.
 *
 * It is a text, because a file would have another name before and after the build. The Secret Service is required: without
 * one the library uses the kernel's keyring, which has no entry for any key and forgets all at the next boot.
 */
const PROGRAM = `
  // Without a listener it opens a debugger port that every user of this machine can connect to.
  process.on("SIGUSR1", () => {});
  const reply = (answer) => process.stdout.write(JSON.stringify(answer), () => process.exit(0));
  const fail = (error) => reply({ error: String(error && error.message) });
  async function work({ service, account, operation, key, replace }) {
    let library;
    try {
      library = require(process.argv[1]);
    } catch {
      return { missing: true };
    }
    const entry = new library.AsyncEntry(service, account, { linux: { store: "secret-service" } });
    if (operation === "trial") await entry.setPassword("trial");
    if (operation === "forget" || operation === "trial") return { done: await entry.deleteCredential() };
    const found = (await entry.getPassword()) ?? null;
    if (operation === "read") return { found };
    if (found === key) return { done: true };
    if (found !== null && !replace) return { done: false };
    await entry.setPassword(key);
    return (await entry.getPassword()) === key ? { done: true, made: true } : { error: "it gave back something else" };
  }
  let asked = "";
  process.stdin.setEncoding("utf8");
  process.stdin.on("data", (piece) => {
    asked += piece;
    if (asked.endsWith("\\n")) work(JSON.parse(asked)).then(reply, fail);
  });
  // The parent has ended. An exit would wait for the library.
  process.stdin.on("end", () => process.kill(process.pid, "SIGKILL"));
`;

/** What the library needs to find the keychain. Nothing else, because variables may hold keys and options for Node. */
const ENVIRONMENT = ["HOME", "USER", "LOGNAME", "PATH", "TMPDIR", "XDG_RUNTIME_DIR", "SECURITYSESSIONID"];

/** Never throws. No problem contains what the keychain holds. */
export async function askKeychain(
  entry: KeychainEntry,
  request: KeychainRequest,
  deps: KeychainDeps,
): Promise<KeychainAnswer> {
  if (deps.signal?.aborted) return failed(STOPPED);
  const bus = sessionBus(deps.env);
  if (!bus.ok) return bus;
  const library = findLibrary();
  if (library === null) return unasked(NO_LIBRARY);
  const env: NodeJS.ProcessEnv = { ...bus.env };
  for (const name of ENVIRONMENT) if (deps.env[name] !== undefined) env[name] = deps.env[name];
  try {
    const child = spawn(process.execPath, ["-e", PROGRAM, library], {
      cwd: "/",
      env,
      // Ctrl-C must not reach it: a key that is being stored is stored whole.
      detached: true,
      stdio: ["pipe", "pipe", "ignore"],
    });
    return await waitForAnswer(child, entry, request, deps);
  } catch (error) {
    return unasked(cannotAsk(error));
  }
}

/** Why an entry is not keybearer's; null: it is. Entries of other programs are neither read nor changed. */
export function foreignEntry({ service }: KeychainEntry): string | null {
  if (service.startsWith("keybearer")) return null;
  return `the service of a keychain entry must begin with keybearer, not ${escapeControlChars(service)}`;
}

/** An entry for messages. */
export function entryName({ service, account }: KeychainEntry): string {
  return escapeControlChars(`${service}/${account}`);
}

type Bus = { readonly ok: true; readonly env: Readonly<Record<string, string>> } | Failed;

/** Where the Secret Service is. macOS and Windows have keychains of their own and need no bus. */
export function sessionBus(env: NodeJS.ProcessEnv): Bus {
  if (process.platform === "darwin" || process.platform === "win32") return { ok: true, env: {} };
  const named = env.DBUS_SESSION_BUS_ADDRESS;
  if (named !== undefined && named !== "") return { ok: true, env: { DBUS_SESSION_BUS_ADDRESS: named } };
  // Where systemd puts it. An ssh login has the folder, but not always the variable.
  const socket = env.XDG_RUNTIME_DIR ? join(env.XDG_RUNTIME_DIR, "bus") : null;
  if (socket !== null && existsSync(socket)) {
    return { ok: true, env: { DBUS_SESSION_BUS_ADDRESS: `unix:path=${encodeURI(socket)}` } };
  }
  return failed(
    "there is no session bus here (DBUS_SESSION_BUS_ADDRESS is not set), so there is no keychain",
    INSTEAD,
  );
}

function findLibrary(): string | null {
  try {
    return createRequire(import.meta.url).resolve("@napi-rs/keyring");
  } catch {
    return null;
  }
}

function waitForAnswer(
  child: Child,
  { service, account }: KeychainEntry,
  request: KeychainRequest,
  deps: KeychainDeps,
): Promise<KeychainAnswer> {
  const { operation } = request;
  return new Promise((done) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const onAbort = () => end(failed(STOPPED));
    const timer = setTimeout(() => end(explainTimeout(deps.limit, operation)), deps.limit);

    function end(answer: KeychainAnswer): void {
      clearTimeout(timer);
      deps.signal?.removeEventListener("abort", onAbort);
      // A window that asks for the password closes with it.
      child.kill("SIGKILL");
      child.stdout.destroy();
      child.stdin.destroy();
      done(answer);
    }
    deps.signal?.addEventListener("abort", onAbort);
    child.once("error", (error) => end(unasked(cannotAsk(error))));
    // Its end decides, not the state of its pipes.
    child.stdout.on("error", () => undefined);
    child.stdin.on("error", () => undefined);
    child.stdout.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      length += chunk.length;
      if (length > 2 * MAX_KEY_BYTES)
        end(failed("the entry in the keychain is larger than 64 KB, so it is not a key"));
    });
    child.once("close", () => end(parseAnswer(Buffer.concat(chunks).toString("utf8"), operation)));
    // Not closed: its end means that this process has ended.
    child.stdin.write(`${JSON.stringify({ service, account, ...request })}\n`);
  });
}

function parseAnswer(printed: string, operation: Operation): KeychainAnswer {
  const answer = parseObject(printed);
  // Nothing, or a part of an answer: the process did not finish.
  if (answer === null)
    return unasked({ problem: "the keychain library stopped without an answer", next: null });
  if ("missing" in answer) return unasked(NO_LIBRARY);
  if ("error" in answer) return explainError(String(answer.error), operation);
  const found = textAt(answer, "found");
  return { ok: true, found, done: answer.done === true, made: answer.made === true };
}

function cannotAsk(error: unknown): Problem {
  const node = escapeControlChars(process.execPath);
  return {
    problem: `the keychain could not be opened (${errorCode(error)} from ${node})`,
    next: "if Node was updated since the start, restart keybearer",
  };
}

function unasked({ problem, next }: Problem): KeychainAnswer {
  return { ...failed(problem, next), unasked: true };
}

const INSTEAD = "use file: or command: for this key";
const NO_LIBRARY: Problem = {
  problem: `the keychain cannot be reached: @napi-rs/keyring is not installed for ${process.platform} on ${process.arch}`,
  next: `if keybearer was updated since the start, restart it; otherwise reinstall it with its optional packages, or ${INSTEAD}`,
};

/** The library has one code for all its errors, so only their texts distinguish them. */
const EXPLANATIONS: readonly (readonly [RegExp, problem: string, next: (retry: string) => string | null])[] =
  [
    [
      /dismissed|is ?locked|interaction is not allowed/i,
      "the keychain is locked, and its password was not entered",
      (retry) => `unlock it, ${retry}`,
    ],
    [
      /no result found|no default/i,
      "the keychain has no default collection to store keys in",
      () => `log in to the desktop once, or ${INSTEAD}`,
    ],
    [
      /not provided by any|ServiceUnknown|was not found|NameHasNoOwner/i,
      "no program on the session bus stores secrets",
      () => `start one, such as gnome-keyring or KeePassXC, or ${INSTEAD}`,
    ],
    [
      /failed to connect|autolaunch|NoServer|disconnected|address|socket/i,
      "the session bus does not answer, so there is no keychain",
      () => `log in again, or ${INSTEAD}`,
    ],
    [
      /matched by|ambiguous/i,
      "the keychain has more than one entry with this name",
      () => "delete the wrong one in its own program",
    ],
    [
      /denied|cancel|auth|not permitted/i,
      "the keychain refused access to keybearer",
      (retry) => `allow it when the keychain asks, ${retry}`,
    ],
    [/utf-?8|encoding/i, "the entry in the keychain is not text, so it is not a key", () => null],
  ];

function explainError(error: string, operation: Operation): Failed {
  const [, problem, next] = EXPLANATIONS.find(([pattern]) => pattern.test(error)) ?? [];
  if (problem !== undefined && next !== undefined) return failed(problem, next(retryAfter(operation)));
  const [line = ""] = error.split(/[\r\n]/, 1);
  return failed(`the keychain failed (${escapeControlChars(redactCredentials(line)).slice(0, 200)})`);
}

function explainTimeout(limit: number, operation: Operation): Failed {
  const problem = `the keychain did not answer within ${limit / 1000} s and may be waiting for its password`;
  return failed(problem, `unlock it, ${retryAfter(operation)}`);
}

/** The daemon reads keys; commands change them. */
function retryAfter(operation: Operation): string {
  return operation === "read"
    ? "then save config.yaml again, or send keybearer a SIGHUP"
    : "then run this again";
}
