import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { accessSync, constants, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
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
/** The password in the lines of the documentation. */
const EXAMPLE_PASSWORD = ">a-long-password";

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

/** The lines that the documentation says to type into redis-cli, so that a test proves them. */
export function documentedSetup(): string[] {
  const page = readFileSync(join(ROOT, SETUP_PAGE), "utf8");
  const block = /^```redis\n(.*?)^```$/ms.exec(page)?.[1];
  if (block === undefined) throw new Error(`${SETUP_PAGE} has no block of redis commands`);
  return block.trimEnd().split("\n");
}

export interface StoreOptions {
  /** false: a restart loses all data, but not the user. Default true. */
  readonly isPersistent?: boolean;
}

/** A real redis-server with the user of the documentation, stopped and removed when the test ends. */
export class StoreServer {
  readonly port: number;
  readonly username = "keybearer";
  readonly password = `pw-${randomBytes(24).toString("hex")}`;
  readonly #adminPassword = randomBytes(24).toString("hex");
  readonly #t: Test;
  readonly #folder: string;
  #running: Running | null = null;

  private constructor(t: Test, folder: string, port: number) {
    this.#t = t;
    this.#folder = folder;
    this.port = port;
  }

  static async start(t: Test, { isPersistent = true }: StoreOptions = {}): Promise<StoreServer> {
    const folder = await mkdtemp(join(tmpdir(), "kb-store-"));
    const store = new StoreServer(t, folder, await freePort());
    // Registered before the program's own teardown. tap runs them in reverse order, so the program ends first.
    t.teardown(() => rm(folder, { recursive: true, force: true }));
    const lines = [
      `port ${store.port}`,
      "bind 127.0.0.1",
      `dir ${folder}`,
      `requirepass ${store.#adminPassword}`,
      'save ""',
    ];
    await writeFile(store.#configFile, `${lines.join("\n")}\n`);
    await store.restart();
    for (const line of documentedSetup())
      await store.admin(line.replace(EXAMPLE_PASSWORD, `>${store.password}`).split(" "));
    if (!isPersistent) {
      await store.admin(["CONFIG", "SET", "appendonly", "no"]);
      await store.admin(["CONFIG", "REWRITE"]);
    }
    return store;
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
    const client = createClient({
      socket: { host: "127.0.0.1", port: this.port, reconnectStrategy: false },
      password: this.#adminPassword,
    });
    // A failed command is reported by its promise.
    client.on("error", () => {});
    await client.connect();
    try {
      return await work((command) => client.sendCommand([...command]));
    } finally {
      client.destroy();
    }
  }
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
