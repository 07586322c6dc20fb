import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { errorCode } from "../core/errors.ts";
import { DELIVERED, type Message, type Outcome, textOf, titleOf } from "./message.ts";

/** Where the desktop of this user is looked for. */
export interface Desktop {
  readonly platform: NodeJS.Platform;
  readonly env: NodeJS.ProcessEnv;
  /** The user's number. */
  readonly uid: number;
  /** The folders in which programs are looked for. Not PATH: it may name a folder of anybody. */
  readonly folders: readonly string[];
}

export function systemDesktop(env: NodeJS.ProcessEnv): Desktop {
  const folders = ["/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"];
  return { platform: process.platform, env, uid: process.getuid?.() ?? 0, folders };
}

interface Invocation {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
}

/** Shows a notification. A machine without a desktop is no error. Never rejects. */
export async function sendToDesktop(
  desktop: Desktop,
  message: Message,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Outcome> {
  const isMac = desktop.platform === "darwin";
  const invocations = isMac ? [macInvocation(message)] : busInvocations(desktop, message);
  if (typeof invocations === "string") return { result: "absent", problem: invocations };
  for (const invocation of invocations) {
    const ended = await run(invocation, timeoutMs, signal);
    if (ended.code === 0) return DELIVERED;
    if (NO_DESKTOP.test(ended.stderr)) continue;
    const how = ended.problem ?? `ended with exit code ${ended.code}`;
    return { result: "retry", problem: `${invocation.program} ${how}`, next: null };
  }
  return { result: "absent", problem: "no program shows notifications here" };
}

/** What the programs say where nothing takes notifications, or where there is no session bus. */
const NO_DESKTOP =
  /ServiceUnknown|not provided by any \.service|NameHasNoOwner|[Cc]ould not connect|[Cc]annot connect|Failed to connect|No such file/;

/**
 * Only a test on macOS executes it. The texts are arguments and no part of the script, so no quote in them can end it.
 * osascript ends with 0 also where notifications are turned off.
 */
function macInvocation(message: Message): Invocation {
  const script = [
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
  ];
  const args = [...script.flatMap((line) => ["-e", line]), "--", titleOf(message), textOf(message)];
  return { program: "/usr/bin/osascript", args, env: {} };
}

/** One for each bus, to be tried in turn. A text says why there is no desktop. */
function busInvocations({ env, uid, folders }: Desktop, message: Message): readonly Invocation[] | string {
  const addresses = findBuses(env, uid);
  if (addresses.length === 0) return "there is no session bus";
  const found = [notifySend, gdbus, busctl].flatMap((make) => {
    const { name, args } = make(message);
    const folder = folders.find((one) => existsSync(join(one, name)));
    return folder === undefined ? [] : [{ program: join(folder, name), args }];
  });
  const [first] = found;
  if (first === undefined) return "there is no notify-send, gdbus or busctl";
  return addresses.map((address) => ({ ...first, env: { DBUS_SESSION_BUS_ADDRESS: address } }));
}

/**
 * systemd's user manager has it in its environment, and always at the same place. A process that outlived the session in
 * which it was started has the address of a bus that is gone.
 */
function findBuses(env: NodeJS.ProcessEnv, uid: number): readonly string[] {
  const named = env.DBUS_SESSION_BUS_ADDRESS ?? "";
  const path = join(env.XDG_RUNTIME_DIR || `/run/user/${uid}`, "bus");
  const usual = existsSync(path) ? `unix:path=${path}` : "";
  return [...new Set([named, usual])].filter((address) => address !== "");
}

interface BusCall {
  readonly name: string;
  readonly args: readonly string[];
}

const URGENCIES = { critical: 2, warning: 1, info: 0 } as const;
const URGENCY_WORDS = ["low", "normal", "critical"] as const;
const BUS_NAME = "org.freedesktop.Notifications";
const BUS_PATH = "/org/freedesktop/Notifications";

function urgencyOf({ state, severity }: Message): 0 | 1 | 2 {
  return state === "ended" ? 0 : URGENCIES[severity];
}

/** Bodies may have markup, so a text must not look like it. */
function bodyOf(message: Message): string {
  return textOf(message).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** It reads a backslash in the body, and not in the title, as the beginning of an escape such as \\n (g_strcompress). */
function notifySend(message: Message): BusCall {
  const body = bodyOf(message).replaceAll("\\", "\\\\");
  const urgency = `--urgency=${URGENCY_WORDS[urgencyOf(message)]}`;
  return {
    name: "notify-send",
    args: ["--app-name=keybearer", urgency, "--", titleOf(message), body],
  };
}

/** With the type of each value: without, gdbus asks the receiver for them. */
function gdbus(message: Message): BusCall {
  const call = ["call", "--session", "--dest", BUS_NAME, "--object-path", BUS_PATH];
  const values = [
    "'keybearer'",
    "uint32 0",
    "''",
    variantText(titleOf(message)),
    variantText(bodyOf(message)),
    "@as []",
    `@a{sv} {'urgency': <byte ${urgencyOf(message)}>}`,
    "int32 -1",
  ];
  return { name: "gdbus", args: [...call, "--method", `${BUS_NAME}.Notify`, "--", ...values] };
}

function variantText(text: string): string {
  const escaped = text.replaceAll("\\", "\\\\").replaceAll("'", "\\'").replaceAll("\n", "\\n");
  return `'${escaped}'`;
}

/** Part of systemd. dbus-send cannot send the empty list and the hints that Notify takes. */
function busctl(message: Message): BusCall {
  const call = ["--user", "--", "call", BUS_NAME, BUS_PATH, BUS_NAME, "Notify", "susssasa{sv}i"];
  const urgency = String(urgencyOf(message));
  const values = [
    "keybearer",
    "0",
    "",
    titleOf(message),
    bodyOf(message),
    "0",
    "1",
    "urgency",
    "y",
    urgency,
    "-1",
  ];
  return { name: "busctl", args: [...call, ...values] };
}

interface Ended {
  readonly code: number | null;
  readonly stderr: string;
  /** Why there is no exit code; null: there is one. */
  readonly problem: string | null;
}

const MAX_STDERR = 4096;

function run({ program, args, env }: Invocation, timeoutMs: number, signal: AbortSignal): Promise<Ended> {
  return new Promise((resolve) => {
    let stderr = "";
    const late = AbortSignal.timeout(timeoutMs);
    const child = spawn(program, args, {
      cwd: "/",
      env,
      stdio: ["ignore", "ignore", "pipe"],
      signal: AbortSignal.any([late, signal]),
      killSignal: "SIGKILL",
    });
    child.stderr?.on("data", (chunk: Buffer) => {
      if (stderr.length < MAX_STDERR) stderr += chunk.toString("utf8");
    });
    child.once("error", (error) => {
      const slow = `did not end within ${timeoutMs / 1000} s`;
      const problem = late.aborted ? slow : `could not be started (${errorCode(error)})`;
      resolve({ code: null, stderr, problem });
    });
    child.once("close", (code, signalName) =>
      resolve({ code, stderr, problem: code === null ? `was ended by ${signalName}` : null }),
    );
  });
}
