import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import type { Test } from "tap";
import { until } from "./until.ts";

const BUS = "/usr/bin/dbus-daemon";
const KEYRING = "/usr/bin/gnome-keyring-daemon";
const SEND = "/usr/bin/dbus-send";
const PASSWORD = "pw";

/** A session bus for one test, with nothing on it. */
export interface SessionBus {
  /** What a process needs to find it. */
  readonly env: Readonly<Record<string, string>>;
  readonly folder: string;
}

/** A real Secret Service (gnome-keyring) with an unlocked collection, for tests of the keychain. */
export interface SecretService extends SessionBus {
  lock(): void;
  unlock(): Promise<void>;
  /** What happens to the window that asks for the password: it cannot open, or stays open without an answer. */
  window(fate: "fails" | "stays"): Promise<void>;
  /** How many windows stay open. */
  asked(): number;
}

/** What is missing for a real Secret Service, or null. */
export function missingForSecrets(): string | null {
  const missing = [BUS, SEND, KEYRING].filter((path) => !existsSync(path));
  try {
    userInfo();
  } catch {
    return "this user is not in /etc/passwd, which gnome-keyring needs";
  }
  return missing.length === 0 ? null : `missing: ${missing.join(", ")} (Debian: gnome-keyring, dbus-bin)`;
}

export async function startBus(t: Test): Promise<SessionBus> {
  // Short, because unix sockets lie below it.
  const folder = await mkdtemp(join(tmpdir(), "kb-"));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  for (const name of ["services", "run", "data", "config"]) await mkdir(join(folder, name), { mode: 0o700 });
  const config = join(folder, "bus.xml");
  await writeFile(config, busConfig(folder));
  const bus = spawn(BUS, [`--config-file=${config}`, "--nofork", "--nopidfile"], {
    env: { PATH: "/usr/bin:/bin", HOME: folder },
    stdio: "ignore",
  });
  t.teardown(() => ended(bus));
  await until("the bus listens", () => existsSync(join(folder, "bus")));
  return {
    folder,
    env: {
      PATH: "/usr/bin:/bin",
      HOME: folder,
      XDG_RUNTIME_DIR: join(folder, "run"),
      XDG_DATA_HOME: join(folder, "data"),
      XDG_CONFIG_HOME: join(folder, "config"),
      DBUS_SESSION_BUS_ADDRESS: `unix:path=${join(folder, "bus")}`,
    },
  };
}

export async function startSecretService(t: Test): Promise<SecretService> {
  const bus = await startBus(t);
  const { env, folder } = bus;
  const pids = join(folder, "asked");
  await offerWindow(folder);
  const window = (fate: "fails" | "stays") =>
    writeFile(windowIn(folder), fate === "fails" ? REFUSING : waitingFor(pids), { mode: 0o700 });
  await window("fails");
  t.teardown(() => endPrompters(pids));
  const start = async () => {
    const started = spawn(KEYRING, ["--unlock", "--foreground", "--components=secrets"], {
      env,
      stdio: ["pipe", "ignore", "ignore"],
    });
    started.stdin?.end(PASSWORD);
    await until("the secret service has an open collection", () => isUnlocked(env));
    return started;
  };
  let keyring = await start();
  t.teardown(() => ended(keyring));
  return {
    ...bus,
    window,
    lock: () => void send(env, "/org/freedesktop/secrets", "Service.Lock", `array:objpath:${COLLECTION}`),
    async unlock() {
      // Like a new login: a running service takes its password only from a window.
      await ended(keyring);
      keyring = await start();
    },
    asked: () => notedPids(pids).length,
  };
}

const COLLECTION = "/org/freedesktop/secrets/collection/login";

function busConfig(folder: string): string {
  return `<busconfig><type>session</type><listen>unix:path=${join(folder, "bus")}</listen>
<servicedir>${join(folder, "services")}</servicedir>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy>
</busconfig>`;
}

const REFUSING = "#!/bin/sh\nexit 1\n";
const waitingFor = (pids: string) => `#!/bin/sh\necho $$ >> '${pids}'\nexec sleep 60\n`;
const windowIn = (folder: string) => join(folder, "window");

/** The bus starts this program when the secret service asks for the password. */
async function offerWindow(folder: string): Promise<void> {
  for (const name of ["SystemPrompter", "PrivatePrompter"]) {
    const file = join(folder, "services", `org.gnome.keyring.${name}.service`);
    await writeFile(file, `[D-BUS Service]\nName=org.gnome.keyring.${name}\nExec=${windowIn(folder)}\n`);
  }
}

function isUnlocked(env: NodeJS.ProcessEnv): boolean {
  try {
    const property = ["string:org.freedesktop.Secret.Collection", "string:Locked"];
    return send(env, COLLECTION, null, ...property).includes("boolean false");
  } catch {
    return false;
  }
}

/** method null: reads a property. */
function send(env: NodeJS.ProcessEnv, path: string, method: string | null, ...args: string[]): string {
  const name = method === null ? "org.freedesktop.DBus.Properties.Get" : `org.freedesktop.Secret.${method}`;
  const words = ["--session", "--print-reply", "--dest=org.freedesktop.secrets", path, name, ...args];
  return execFileSync(SEND, words, { env, stdio: "pipe", encoding: "utf8" });
}

/**
 * The processes that appended a line each to the file. Only whole lines count: a shell makes the file before it writes to
 * it, and an empty line would be process 0, which stands for a whole process group.
 */
export function notedPids(file: string): number[] {
  return existsSync(file) ? readFileSync(file, "utf8").split("\n").slice(0, -1).map(Number) : [];
}

function endPrompters(file: string): void {
  for (const pid of notedPids(file)) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has ended by itself.
    }
  }
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}
