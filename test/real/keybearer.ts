import { execFile } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import Database from "libsql";
import { freePort } from "../doubles/listen.ts";
import { type Gateway, PRICES, type Program, startProgram, untilAnswered } from "./gateway.ts";

/** A record as `usage export --json` prints it; the fields that are read here. */
export interface ExportedRecord {
  readonly id: string;
  readonly started_at: string | number;
  /** null: nothing was sent. */
  readonly sent_at: string | number | null;
  /** null: the daemon was killed while it ran. */
  readonly ended_at: string | number | null;
  readonly tool: string | null;
  readonly model: string | null;
  readonly stream: boolean | null;
  readonly status: number | null;
  readonly input_tokens: number | null;
  readonly cache_read_tokens: number | null;
  readonly output_tokens: number | null;
  readonly cost_microdollars: number | null;
  readonly bytes_in: number;
  readonly gateway_ids: Readonly<Record<string, string>> | null;
}

/** A console row with its verdict, as state/mirror.db holds it. */
export interface JudgedRow {
  readonly identity: string;
  readonly kind: string;
  readonly request_id: string | null;
  readonly input_tokens: number | null;
  readonly cache_read_tokens: number | null;
  readonly output_tokens: number | null;
  readonly billed_microdollars: number | null;
  readonly verdict: string | null;
  readonly how: string | null;
  readonly certain: number;
  readonly record: string | null;
  readonly reason: string | null;
}

/** The part of `mirror --json` that is read here. */
export interface MirrorState {
  readonly state: string;
  readonly why: string | null;
  readonly alarms: readonly { readonly key: string; readonly certain: boolean; readonly count: number }[];
}

/** The program under test: a daemon in a home of its own, and the commands that talk to it. */
export class Keybearer {
  readonly #main: string;
  readonly home: string;
  readonly #env: NodeJS.ProcessEnv;
  #daemon: Program | null = null;
  #port = 0;
  /** The local token of each tool. */
  readonly tokens = new Map<string, string>();

  constructor(dist: string, home: string) {
    this.#main = join(dist, "cli", "main.js");
    this.home = home;
    const env: NodeJS.ProcessEnv = { ...process.env, KEYBEARER_HOME: home };
    // keybearer does not start with certificate authorities that it was not configured with.
    delete env.NODE_EXTRA_CA_CERTS;
    delete env.SSL_CERT_FILE;
    this.#env = env;
  }

  get origin(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Writes config.yaml and makes a token for each tool. */
  async configure(gateway: Gateway): Promise<void> {
    mkdirSync(this.home, { recursive: true, mode: 0o700 });
    this.#port = await freePort();
    const groups = new Map(gateway.tools.map(({ group, multiplier }) => [group, multiplier]));
    const lines = [
      `listen: localhost:${this.#port}`,
      "dashboard: false",
      "gateways:",
      "  main:",
      `    base_url: ${gateway.origin}/v1`,
      `    messages_url: ${gateway.origin}`,
      "    groups:",
      ...[...groups].map(([name, multiplier]) => `      ${name}: { multiplier: ${multiplier} }`),
      "    console:",
      // It reads when this test says so.
      '      schedule: "0 0 1 1 *"',
      ...gateway.console.map((line) => `      ${line}`),
      "tools:",
      ...gateway.tools.flatMap(({ tool, key, group }) => [
        `  ${tool}:`,
        `    group: ${group}`,
        `    key: ${key}`,
      ]),
      "prices:",
      ...Object.entries(PRICES).map(([model, price]) => `  ${model}: ${JSON.stringify(price)}`),
    ];
    writeFileSync(join(this.home, "config.yaml"), `${lines.join("\n")}\n`, { mode: 0o600 });
    for (const { tool } of gateway.tools) {
      const { stdout, stderr } = await this.run("tools", "token", tool);
      const token = /kb_[\w-]+/.exec(stdout)?.[0];
      if (token === undefined) throw new Error(`no token for ${tool}: ${stderr}`);
      this.tokens.set(tool, token);
    }
  }

  async start(): Promise<void> {
    this.#daemon = startProgram(process.execPath, [this.#main, "run"], {
      cwd: this.home,
      env: this.#env,
      output: join(this.home, "daemon.log"),
    });
    await untilAnswered(`${this.origin}/healthz`, 30_000);
  }

  /** With SIGKILL nothing is written any more, and nothing is closed. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    await this.#daemon?.stop(signal);
    this.#daemon = null;
  }

  /** Runs a command. An exit code other than 0 is an answer, too: `mirror` has 1 while there is an alarm. */
  async run(...args: string[]): Promise<{ stdout: string; stderr: string }> {
    try {
      return await promisify(execFile)(process.execPath, [this.#main, ...args], {
        env: this.#env,
        maxBuffer: 256 * 1024 * 1024,
      });
    } catch (error) {
      const {
        stdout = "",
        stderr = "",
        code,
      } = error as { stdout?: string; stderr?: string; code?: unknown };
      if (typeof code !== "number") throw error;
      return { stdout, stderr };
    }
  }

  async records(): Promise<ExportedRecord[]> {
    return JSON.parse((await this.run("usage", "export", "--since", "all", "--json")).stdout);
  }

  async mirror(): Promise<MirrorState> {
    const { stdout } = await this.run("mirror", "--json");
    const [state] = JSON.parse(stdout) as MirrorState[];
    if (state === undefined) throw new Error("no console is mirrored");
    return state;
  }

  /** Every row. `mirror diff` lists at most 500 of them, and not those that match. */
  rows(): JudgedRow[] {
    const db = new Database(join(this.home, "state", "mirror.db"), { readonly: true, timeout: 5000 });
    try {
      return db
        .prepare(
          `SELECT identity, kind, request_id, input_tokens, cache_read_tokens, output_tokens,
             billed_microdollars, verdict, how, certain, record, reason
           FROM console_rows`,
        )
        .all() as JudgedRow[];
    } finally {
      db.close();
    }
  }
}
