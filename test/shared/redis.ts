import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { accessSync, constants, readFileSync, rmSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createClient } from "@redis/client";
import type { Test } from "tap";
import { type Running, startProgram } from "../doubles/command.ts";
import { freePort } from "../doubles/listen.ts";
import { ROOT } from "../doubles/paths.ts";
import { until } from "../doubles/until.ts";

/** The first one in PATH is used. */
const PROGRAMS = ["redis-server", "valkey-server"];
const SETUP_PAGE = "docs/several-machines.md";
/** In the lines of the documentation. */
const EXAMPLE = {
  password: ">a-long-password",
  adminPassword: "another-long-password",
  folder: "/etc/redis",
  names: "DNS:store.example.net,IP:192.0.2.10",
  port: "tls-port 6379",
};

/** Why no store can be started; null: one can. */
export function missingStore(): string | null {
  return programPath() === null ? "there is no redis-server: install redis-server" : null;
}

function programPath(): string | null {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const paths = PROGRAMS.flatMap((name) => folders.map((folder) => join(folder, name)));
  return paths.find(isExecutable) ?? null;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The lines of the documentation's first block in this language. Tests set up their stores with them. */
function documented(language: "sh" | "conf" | "redis"): string[] {
  const page = readFileSync(join(ROOT, SETUP_PAGE), "utf8");
  const block = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, "ms").exec(page)?.[1];
  if (block === undefined) throw new Error(`${SETUP_PAGE} has no block of ${language}`);
  return block.trimEnd().split("\n");
}

export interface StoreOptions {
  /** false: a restart loses all data, but not the user. Default true. */
  readonly isPersistent?: boolean;
  /** As the documentation says to set it up. Default false: without TLS, on the same machine. */
  readonly hasTls?: boolean;
}

/** A real redis-server with the user of the documentation, stopped and removed when the test ends. */
export class StoreServer {
  readonly port: number;
  readonly username = "keybearer";
  readonly password = `pw-${randomBytes(24).toString("hex")}`;
  /** The file with its certificate; null: it has no TLS. */
  readonly certificate: string | null;
  readonly #adminPassword = `pw-${randomBytes(24).toString("hex")}`;
  readonly #t: Test;
  readonly #folder: string;
  #running: Running | null = null;
  #admin: Admin | null = null;

  private constructor(t: Test, folder: string, port: number, hasTls: boolean) {
    this.#t = t;
    this.#folder = folder;
    this.port = port;
    this.certificate = hasTls ? join(folder, "store.crt") : null;
  }

  /** The store that emptyStore() returns. It must not keep this process alive, and ends with it. */
  static async startForProcess(): Promise<StoreServer> {
    const store = await StoreServer.start({ teardown: () => {} } as unknown as Test);
    const child = store.#running?.child;
    child?.unref();
    for (const pipe of [child?.stdout, child?.stderr]) (pipe as Socket).unref();
    process.once("exit", () => {
      child?.kill("SIGKILL");
      rmSync(store.#folder, { recursive: true, force: true });
    });
    return store;
  }

  static async start(
    t: Test,
    { isPersistent = true, hasTls = false }: StoreOptions = {},
  ): Promise<StoreServer> {
    const folder = await mkdtemp(join(tmpdir(), "kb-store-"));
    const store = new StoreServer(t, folder, await freePort(), hasTls);
    // Registered before the program's own teardown. tap runs them in reverse order, so the program ends first.
    t.teardown(() => rm(folder, { recursive: true, force: true }));
    await store.#writeConfig();
    await store.restart();
    for (const line of documented("redis"))
      await store.admin(line.replace(EXAMPLE.password, `>${store.password}`).split(" "));
    // Until its first append-only file is written, a server does not end on SIGTERM.
    await until("the append-only file is written", async () =>
      /aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0/.test(
        String(await store.admin(["INFO", "persistence"])),
      ),
    );
    if (!isPersistent) {
      await store.admin(["CONFIG", "SET", "appendonly", "no"]);
      await store.admin(["CONFIG", "REWRITE"]);
    }
    return store;
  }

  async #writeConfig(): Promise<void> {
    const own = [`dir ${this.#folder}`, 'save ""', "bind 127.0.0.1"];
    if (this.certificate === null) {
      const lines = [...own, `port ${this.port}`, `requirepass ${this.#adminPassword}`];
      return writeFile(this.#configFile, `${lines.join("\n")}\n`);
    }
    const openssl = documented("sh").find((line) => line.startsWith("openssl "));
    if (openssl === undefined) throw new Error(`${SETUP_PAGE} makes no certificate`);
    const command = openssl.replaceAll(EXAMPLE.folder, this.#folder).replace(EXAMPLE.names, "IP:127.0.0.1");
    execFileSync("/bin/sh", ["-c", command], { stdio: "ignore" });
    const lines = documented("conf")
      .filter((line) => !line.startsWith("bind "))
      .map((line) =>
        line.replace(EXAMPLE.folder, this.#folder).replace(EXAMPLE.port, `tls-port ${this.port}`),
      );
    const text = [...own, ...lines].join("\n").replace(EXAMPLE.adminPassword, this.#adminPassword);
    return writeFile(this.#configFile, `${text}\n`);
  }

  get #configFile(): string {
    return join(this.#folder, "redis.conf");
  }

  /** Starts it on the same port and data, after stop() or kill(). */
  async restart(): Promise<void> {
    const program = programPath();
    if (program === null) throw new Error("there is no redis-server");
    this.#running = startProgram(this.#t, program, [this.#configFile], { PATH: process.env.PATH });
    await this.#running.says(/Ready to accept connections/);
  }

  /** As the system stops it. */
  async stop(): Promise<void> {
    await this.#end("SIGTERM");
  }

  /** kill -9 */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    if (this.#admin?.isOpen) this.#admin.destroy();
    this.#admin = null;
    this.#running?.child.kill(signal);
    await this.#running?.ended;
    this.#running = null;
  }

  /** Runs a command as the administrator. */
  async admin(command: readonly string[]): Promise<unknown> {
    return this.#withAdmin((send) => send(command));
  }

  /** Every key with its type and value, as text. */
  async dump(): Promise<string> {
    return this.#withAdmin(async (send) => {
      const lines: string[] = [];
      for (const key of (await send(["KEYS", "*"])) as string[]) {
        const type = String(await send(["TYPE", key]));
        const value = await send(READ[type]?.(key) ?? ["DUMP", key]);
        lines.push(`${key} ${type} ${JSON.stringify(value)}`);
      }
      return lines.sort().join("\n");
    });
  }

  /** Collects the text of every command that the server gets from now on, until it ends. */
  async monitor(): Promise<() => string> {
    const socket = connect(this.port, "127.0.0.1");
    // The server is killed on purpose.
    socket.on("error", () => {});
    this.#t.teardown(() => socket.destroy());
    await once(socket, "connect");
    let text = "";
    socket.setEncoding("utf8").on("data", (part: string) => {
      text += part;
    });
    socket.write(`AUTH ${this.#adminPassword}\r\nMONITOR\r\n`);
    await until("the server is monitored", () => text.startsWith("+OK\r\n+OK\r\n"));
    return () => text;
  }

  async #withAdmin<T>(
    work: (send: (command: readonly string[]) => Promise<unknown>) => Promise<T>,
  ): Promise<T> {
    const client = await this.#adminClient();
    // An idle connection does not keep this process alive.
    client.ref();
    try {
      return await work((command) => client.sendCommand([...command]));
    } finally {
      client.unref();
    }
  }

  /** Kept until the server ends: the library makes a new class of all commands for each new set of options. */
  async #adminClient(): Promise<Admin> {
    if (this.#admin?.isReady) return this.#admin;
    this.#admin = newAdmin(this.port, this.#adminPassword, this.certificate);
    await this.#admin.connect();
    return this.#admin;
  }
}

type Admin = ReturnType<typeof newAdmin>;

function newAdmin(port: number, password: string, certificate: string | null) {
  const tls = certificate === null ? {} : ({ tls: true, ca: readFileSync(certificate) } as const);
  const client = createClient({
    socket: { host: "127.0.0.1", port, reconnectStrategy: false, ...tls },
    password,
  });
  // A failed command is reported by its promise.
  client.on("error", () => {});
  return client;
}

let storeOfProcess: Promise<StoreServer> | null = null;

/** An empty store, for a test that does not stop it. The test files of a process share it: a start takes 250 ms. */
export async function emptyStore(): Promise<StoreServer> {
  storeOfProcess ??= StoreServer.startForProcess();
  const store = await storeOfProcess;
  await store.admin(["FLUSHALL"]);
  return store;
}

/** How each type is read whole. */
const READ: Readonly<Record<string, (key: string) => string[]>> = {
  string: (key) => ["GET", key],
  hash: (key) => ["HGETALL", key],
  list: (key) => ["LRANGE", key, "0", "-1"],
  set: (key) => ["SMEMBERS", key],
  zset: (key) => ["ZRANGE", key, "0", "-1", "WITHSCORES"],
  stream: (key) => ["XRANGE", key, "-", "+"],
};
