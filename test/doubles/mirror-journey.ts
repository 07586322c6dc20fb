import { randomBytes } from "node:crypto";
import { request } from "node:http";
import type { Test } from "tap";
import { askDaemon } from "../../src/control/client.ts";
import type { Status } from "../../src/control/status.ts";
import type { KeysAnswer } from "../../src/mirror/report/console-keys.ts";
import type { ComparedRow, ConsoleStatus, MirrorReport } from "../../src/mirror/report/shape.ts";
import { heldClock } from "../keys/held-clock.ts";
import type { ConsoleDouble, DoubleOptions, Use } from "./consoles/console-double.ts";
import { type ConsoleName, startConsole } from "./consoles/start-console.ts";
import { type DaemonUnderTest, freshToken, startUnderTest } from "./daemon-under-test.ts";
import { until } from "./until.ts";

export const MINUTE = 60_000;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** A key as every kind of console takes it: nothing but letters and digits behind its `sk-`. */
export function consoleKey(): string {
  return `sk-${randomBytes(24).toString("hex")}`;
}

export function fingerprint(key: string): string {
  return `…${key.slice(-4)}`;
}

export type HeldClock = ReturnType<typeof heldClock>;

/** A tool of the journey: what it holds, and what it says to the daemon. */
export interface Caller {
  readonly name: string;
  readonly key: string;
  readonly token: string;
  readonly hash: string;
}

export interface Answered {
  readonly status: number;
  readonly text: string;
  readonly headers: Headers;
  /** Of our record. */
  readonly id: string;
}

export interface ConfigOptions {
  /** Settings of each tool in YAML's flow style, such as `keys_elsewhere: true`. Default: one tool, codex, with none. */
  readonly tools?: Readonly<Record<string, string>>;
  /** Below `console:`; default what the double says. */
  readonly console?: readonly string[];
  /** Lines of the gateway. */
  readonly gateway?: readonly string[];
  /** Lines at the end of the file. */
  readonly more?: readonly string[];
}

export interface JourneyOptions extends ConfigOptions {
  readonly double?: DoubleOptions;
  /** Does what it likes with the console before the daemon starts. */
  readonly before?: (console: ConsoleDouble, callers: Readonly<Record<string, Caller>>) => void;
  readonly home?: string;
  readonly env?: NodeJS.ProcessEnv;
}

/** A daemon between tools and a console's gateway, on a clock that moves only when the test says so. */
export interface MirrorJourney extends DaemonUnderTest {
  readonly console: ConsoleDouble;
  readonly clock: HeldClock;
  readonly codex: Caller;
  readonly callers: Readonly<Record<string, Caller>>;
  caller(tool: string): Caller;
  config(options?: ConfigOptions): string;
  /** One request that passes the daemon, read to its end. */
  ask(headers?: Readonly<Record<string, string>>, more?: AskOptions): Promise<Answered>;
  /** One that did not. */
  elsewhere(use?: Partial<Use>): void;
  /** Reads the console through, from now, and answers how it is then. */
  sync(): Promise<ConsoleStatus>;
  /** Waits for what runs. */
  idle(): Promise<ConsoleStatus>;
  mirror(): Promise<MirrorReport>;
  status(): Promise<Status>;
  keys(): Promise<KeysAnswer>;
  diff(): Promise<ComparedRow[]>;
  compared(what: string): Promise<ComparedRow>;
  ack(): Promise<number>;
  control<T>(method: "GET" | "POST", path: string, body?: unknown): Promise<T>;
  /** Log lines with this in their message. */
  logged(words: RegExp): Record<string, unknown>[];
}

export interface AskOptions {
  readonly tool?: string;
  readonly path?: string;
  readonly model?: string;
  readonly stream?: boolean;
  readonly method?: string;
}

export async function startJourney(
  t: Test,
  name: ConsoleName,
  options: JourneyOptions = {},
): Promise<MirrorJourney> {
  const clock = heldClock();
  const console = await startConsole(t, name, { now: clock.now, ...options.double });
  return startBeside(t, console, clock, options);
}

/** The same with a console that runs already, such as for a second start in the same home. */
export async function startBeside(
  t: Test,
  console: ConsoleDouble,
  clock: HeldClock,
  options: JourneyOptions & { readonly callers?: Readonly<Record<string, Caller>> } = {},
): Promise<MirrorJourney> {
  const { callers, config } = configFor(console, options);
  if (options.callers === undefined)
    for (const { name, key } of Object.values(callers)) console.addKey({ name, key });
  options.before?.(console, callers);
  const under = await startUnderTest(t, config(), {
    clock,
    ...(options.home === undefined ? {} : { home: options.home }),
    ...(options.env === undefined ? {} : { env: options.env }),
  });
  return { ...under, ...journeyOn(under, console, clock, callers), config };
}

/** Keys and tokens for the tools, and the file that names them. */
export function configFor(
  console: ConsoleDouble,
  options: ConfigOptions & { readonly callers?: Readonly<Record<string, Caller>> },
): { callers: Readonly<Record<string, Caller>>; config: (now?: ConfigOptions) => string } {
  const made = Object.keys(options.tools ?? { codex: "" }).map((name): [string, Caller] => {
    return [name, { name, key: consoleKey(), ...freshToken() }];
  });
  const callers = options.callers ?? Object.fromEntries(made);
  const config = (now: ConfigOptions = {}): string => {
    const {
      tools = { codex: "" },
      gateway = [],
      more = [],
      console: lines = console.config,
    } = {
      ...options,
      ...now,
    };
    return [
      "gateways:",
      "  main:",
      `    base_url: ${console.url}/v1`,
      ...gateway.map((line) => `    ${line}`),
      "    console:",
      ...lines.map((line) => `      ${line}`),
      "tools:",
      ...Object.entries(tools).map(([name, settings]) => {
        const key = /\bkey:/.test(settings) ? [] : [`key: ${callers[name]?.key}`];
        const own = [...key, `token: "${callers[name]?.hash}"`, ...(settings === "" ? [] : [settings])];
        return `  ${name}: { ${own.join(", ")} }`;
      }),
      ...more,
      "",
    ].join("\n");
  };
  return { callers, config };
}

function journeyOn(
  under: DaemonUnderTest,
  console: ConsoleDouble,
  clock: HeldClock,
  callers: Readonly<Record<string, Caller>>,
): Omit<MirrorJourney, keyof DaemonUnderTest | "config"> {
  const control = <T>(method: "GET" | "POST", path: string, body?: unknown) =>
    controlOf<T>(under.places.socket, method, path, body);
  const caller = (tool: string): Caller => {
    const found = callers[tool];
    if (found === undefined) throw new Error(`there is no tool ${tool}`);
    return found;
  };
  const codex = caller("codex");
  const consoleNow = async () => {
    const [one] = (await under.daemon.status()).consoles;
    if (one === undefined) throw new Error("no console is watched");
    return one;
  };
  const idle = async () => {
    let last = await consoleNow();
    await until("the sync is over", async () => {
      last = await consoleNow();
      return last.state !== "syncing";
    });
    return last;
  };
  return {
    console,
    clock,
    codex,
    callers,
    caller,
    control,
    idle,
    ask: (headers = {}, more = {}) => ask(under.url, caller(more.tool ?? "codex").token, headers, more),
    elsewhere(use = {}) {
      const usual = { key: codex.key, model: "m", stream: false, input: 40, output: 9, dollars: 0.02 };
      console.bill({ ...usual, ...use });
    },
    async sync() {
      await idle();
      await control("POST", "/sync/main", {});
      return idle();
    },
    async mirror() {
      const [report] = await control<MirrorReport[]>("GET", "/mirror");
      if (report === undefined) throw new Error("no console is mirrored");
      return report;
    },
    status: () => control("GET", "/status"),
    keys: () => control("GET", "/keys"),
    diff: () => control("GET", "/mirrordiff"),
    async compared(what) {
      const found = await control<ComparedRow[]>("POST", "/compared", { what });
      const [one] = found;
      if (one === undefined || found.length > 1) throw new Error(`${found.length} are ${what}`);
      return one;
    },
    async ack() {
      const asked = { gateway: null, key: null, last_at: null, count: null };
      return (await control<{ acknowledged: number }>("POST", "/ack", asked)).acknowledged;
    },
    logged: (words) => under.log().filter(({ msg }) => words.test(String(msg))),
  };
}

export async function controlOf<T>(
  socket: string,
  method: "GET" | "POST",
  path: string,
  body?: unknown,
): Promise<T> {
  const asked = await askDaemon<T>(socket, method, path, body);
  if (!asked.ok) throw new Error(`${method} ${path}: ${asked.reason}`);
  return asked.value;
}

async function ask(
  url: string,
  token: string,
  headers: Readonly<Record<string, string>>,
  { path = "/v1/chat/completions", model = "m", stream = false, method = "POST" }: AskOptions,
): Promise<Answered> {
  const answer = await fetch(`${url}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json", ...headers },
    ...(method === "POST" ? { body: JSON.stringify({ model, stream, messages: [], input: "hello" }) } : {}),
  });
  const text = await answer.text();
  return {
    status: answer.status,
    text,
    headers: answer.headers,
    id: answer.headers.get("x-keybearer-request-id") ?? "",
  };
}

/** A request whose caller leaves when the gateway has it: before the answer's head, or in the middle of its body. */
export async function leave(
  journey: Pick<MirrorJourney, "url" | "console" | "codex">,
  when: "before-headers" | "in-body",
  headers: Readonly<Record<string, string>> = {},
): Promise<void> {
  const reached = journey.console.reached();
  const asking = request(`${journey.url}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${journey.codex.token}`,
      "content-type": "application/json",
      [`x-test-hang-${when}`]: "1",
      ...headers,
    },
  });
  asking.on("error", () => {});
  const body = new Promise<void>((resolve) => {
    asking.on("response", (answer) => {
      answer.on("error", () => {});
      answer.once("data", () => resolve());
    });
  });
  asking.end(JSON.stringify({ model: "m", stream: true, messages: [] }));
  if (when === "in-body") await body;
  else await until("the gateway has it", () => journey.console.reached() > reached);
  asking.destroy();
}
