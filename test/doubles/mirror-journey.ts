// For journeys of the mirror: a daemon between tools and a console double, on a clock that the test moves.
import { randomBytes } from "node:crypto";
import { type ClientRequest, request } from "node:http";
import type { Test } from "tap";
import { askDaemon } from "../../src/control/client.ts";
import type { Status } from "../../src/control/status.ts";
import type { ComparedRow, ConsoleStatus, KeysAnswer, MirrorReport } from "../../src/mirror/report/shape.ts";
import { MirrorDatabase } from "../../src/mirror/store/database.ts";
import { writeFact } from "../../src/mirror/store/facts.ts";
import type { ConsoleDouble, Use } from "./consoles/console-double.ts";
import { type ConsoleName, startConsole } from "./consoles/start-console.ts";
import { type DaemonUnderTest, freshToken, startUnderTest } from "./daemon-under-test.ts";
import { heldClock } from "./held-clock.ts";
import { quietLog } from "./quiet-log.ts";
import { until } from "./until.ts";

export const MINUTE = 60_000;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** A key as every kind of console accepts it: only letters and digits after its `sk-`. */
export function consoleKey(): string {
  return `sk-${randomBytes(24).toString("hex")}`;
}

export function fingerprint(key: string): string {
  return `…${key.slice(-4)}`;
}

/** A tool of the journey: the key that the daemon holds for it, and the token that it sends to the daemon. */
export interface Caller {
  readonly name: string;
  readonly key: string;
  readonly token: string;
  readonly hash: string;
}

export type Callers = Readonly<Record<string, Caller>>;

export interface ConfigOptions {
  /** Settings of each tool in YAML's flow style, such as `keys_elsewhere: true`. Default: one tool, codex, with none. */
  readonly tools?: Readonly<Record<string, string>>;
  /** Lines below `console:`. Default: the double's. Empty: the gateway has no console. */
  readonly console?: readonly string[];
  /** Lines of the gateway. */
  readonly gateway?: readonly string[];
  /** Lines at the end of the file. */
  readonly more?: readonly string[];
}

export interface JourneyOptions extends ConfigOptions {
  /** Prepares the console before the daemon starts. */
  readonly before?: (console: ConsoleDouble, callers: Callers) => void;
  /** For a second start: the home and the callers of the first. */
  readonly home?: string;
  readonly callers?: Callers;
}

/** A daemon between tools and a console's gateway, on a clock that moves only when the test moves it. */
export interface MirrorJourney extends DaemonUnderTest {
  readonly console: ConsoleDouble;
  readonly clock: ReturnType<typeof heldClock>;
  readonly codex: Caller;
  readonly callers: Callers;
  caller(tool: string): Caller;
  /** The text of config.yaml, with other options if given. */
  config(options?: ConfigOptions): string;
  /** Saves config.yaml, and waits until the daemon uses it. */
  edit(text: string): Promise<void>;
  /** A second daemon with the same options in the same home, after this one has stopped. */
  startAgain(): Promise<MirrorJourney>;
  /** One request through the daemon, read to its end. */
  ask(headers?: Readonly<Record<string, string>>, more?: AskOptions): Promise<Answered>;
  /** One request past the daemon. */
  elsewhere(use?: Partial<Use>): void;
  /** Reads the console now. Returns its status afterwards. */
  sync(): Promise<ConsoleStatus>;
  /** Waits until no sync is in flight. */
  idle(): Promise<ConsoleStatus>;
  mirror(): Promise<MirrorReport>;
  status(): Promise<Status>;
  keys(): Promise<KeysAnswer>;
  diff(): Promise<ComparedRow[]>;
  compared(what: string): Promise<ComparedRow>;
  ack(): Promise<number>;
  control<T>(method: "GET" | "POST", path: string, body?: unknown): Promise<T>;
  /** Log lines whose message matches. */
  logged(words: RegExp): Record<string, unknown>[];
}

export interface AskOptions {
  readonly tool?: string;
  readonly path?: string;
  readonly model?: string;
  readonly stream?: boolean;
  readonly method?: string;
}

export interface Answered {
  readonly status: number;
  readonly text: string;
  readonly headers: Headers;
  /** Of our record. */
  readonly id: string;
}

export async function startJourney(
  t: Test,
  name: ConsoleName,
  options: JourneyOptions = {},
): Promise<MirrorJourney> {
  const clock = heldClock();
  const console = await startConsole(t, name, { now: clock.now });
  return startBeside(t, console, clock, options);
}

/** The same with a console that runs already. */
export async function startBeside(
  t: Test,
  console: ConsoleDouble,
  clock: MirrorJourney["clock"],
  options: JourneyOptions = {},
): Promise<MirrorJourney> {
  const { callers, config } = configFor(console, options);
  if (options.callers === undefined) {
    for (const { name, key } of Object.values(callers)) console.addKey({ name, key });
    options.before?.(console, callers);
  }
  const home = options.home === undefined ? {} : { home: options.home };
  const under = await startUnderTest(t, config(), { clock, ...home });

  function control<T>(method: "GET" | "POST", path: string, body?: unknown): Promise<T> {
    return controlOf<T>(under.paths.socket, method, path, body);
  }

  function caller(tool: string): Caller {
    const found = callers[tool];
    if (found === undefined) throw new Error(`there is no tool ${tool}`);
    return found;
  }

  async function idle(): Promise<ConsoleStatus> {
    let status: ConsoleStatus | undefined;
    const isOver = async () => {
      [status] = (await under.daemon.status()).consoles;
      return status?.state !== "syncing";
    };
    // A status takes 2 ms of the processor, and a sync 50 ms or more.
    await until("the sync is over", isOver, 30);
    if (status === undefined) throw new Error("no console is watched");
    return status;
  }

  const status = () => control<Status>("GET", "/status");

  return {
    ...under,
    console,
    clock,
    codex: caller("codex"),
    callers,
    caller,
    config,
    control,
    idle,
    status,
    async edit(text) {
      const { revision } = (await status()).config;
      await under.save(text);
      await until("the edit is in force", async () => (await status()).config.revision > revision);
    },
    startAgain: () => startBeside(t, console, clock, { ...options, home: under.home, callers }),
    ask: (headers = {}, more = {}) => ask(under.url, caller(more.tool ?? "codex").token, headers, more),
    elsewhere(use = {}) {
      const { key } = caller("codex");
      console.bill({ key, model: "m", stream: false, input: 40, output: 9, dollars: 0.02, ...use });
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
    keys: () => control("GET", "/keys"),
    diff: () => control("GET", "/mirrordiff"),
    async compared(what) {
      const found = await control<ComparedRow[]>("POST", "/compared", { what });
      const [one] = found;
      if (one === undefined || found.length > 1) throw new Error(`${found.length} are ${what}`);
      return one;
    },
    async ack() {
      const everything = { gateway: null, key: null, certain: null, last_at: null, count: null };
      return (await control<{ acknowledged: number }>("POST", "/ack", everything)).acknowledged;
    },
    // What is an event as well has a second line.
    logged: (words) => under.log().filter(({ msg, event }) => event === undefined && words.test(String(msg))),
  };
}

/** Keys and tokens for the tools, and the config.yaml that names them. */
export function configFor(
  console: ConsoleDouble,
  options: ConfigOptions & { readonly callers?: Callers },
): { callers: Callers; config: (now?: ConfigOptions) => string } {
  const callers = options.callers ?? newCallers(Object.keys(options.tools ?? { codex: "" }));

  function toolLine(name: string, settings: string): string {
    const parts = [`token: "${callers[name]?.hash}"`];
    if (!/\bkey:/.test(settings)) parts.push(`key: ${callers[name]?.key}`);
    if (settings !== "") parts.push(settings);
    return `  ${name}: { ${parts.join(", ")} }`;
  }

  function config(now: ConfigOptions = {}): string {
    const all = { ...options, ...now };
    const consoleLines = all.console ?? console.config;
    return [
      "gateways:",
      "  main:",
      `    base_url: ${console.url}/v1`,
      ...(all.gateway ?? []).map((line) => `    ${line}`),
      ...(consoleLines.length === 0 ? [] : ["    console:"]),
      ...consoleLines.map((line) => `      ${line}`),
      "tools:",
      ...Object.entries(all.tools ?? { codex: "" }).map(([name, settings]) => toolLine(name, settings)),
      ...(all.more ?? []),
      "",
    ].join("\n");
  }

  return { callers, config };
}

function newCallers(names: readonly string[]): Callers {
  return Object.fromEntries(names.map((name) => [name, { name, key: consoleKey(), ...freshToken() }]));
}

export async function controlOf<T>(
  socket: string,
  method: "GET" | "POST",
  path: string,
  body?: unknown,
): Promise<T> {
  const asked = await askDaemon<T>({ socket, config: "", explicit: false, mode: "user" }, method, path, body);
  if (!asked.ok) throw new Error(`${method} ${path}: ${asked.problem}`);
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
  const id = answer.headers.get("x-keybearer-request-id") ?? "";
  return { status: answer.status, text, headers: answer.headers, id };
}

/** Starts a request that the gateway does not finish: it hangs before its headers, or after the first part of its body. */
export async function hang(
  { url, console, codex }: MirrorJourney,
  when: "before-headers" | "in-body",
  headers: Readonly<Record<string, string>> = {},
): Promise<ClientRequest> {
  const reached = console.reached();
  const asking = request(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${codex.token}`,
      "content-type": "application/json",
      [`x-test-hang-${when}`]: "1",
      ...headers,
    },
  });
  // The test destroys the request, which is an error for both sides.
  asking.on("error", () => {});
  const firstPart = new Promise<void>((resolve) => {
    asking.on("response", (answer) => {
      answer.on("error", () => {});
      answer.once("data", () => resolve());
    });
  });
  asking.end(JSON.stringify({ model: "m", stream: true, messages: [] }));
  if (when === "in-body") await firstPart;
  else await until("the gateway has it", () => console.reached() > reached);
  return asking;
}

/** A request whose client leaves before the response is complete. It is billed by the time this returns. */
export async function leave(
  journey: MirrorJourney,
  when: "before-headers" | "in-body",
  headers: Readonly<Record<string, string>> = {},
): Promise<void> {
  const asking = await hang(journey, when, headers);
  const billed = journey.console.bills();
  asking.destroy();
  await until("the gateway has billed it", () => journey.console.bills() > billed);
}

/** As after some days: the console listed requests that got no answer, and rows began up to three seconds from theirs. */
export function haveLearned({ paths }: MirrorJourney): void {
  const database = new MirrorDatabase({ file: paths.mirror, index: paths.index, log: quietLog([]) });
  const written = database.ask((db) => {
    const start = { later: 0, within: 3000, close: 3000, latest: 3000 };
    const unanswered = Array.from({ length: 5 }, (_, n) => ({
      record: `${n}`.padStart(26, "0"),
      started_at: 0,
      kind: "m|true",
      isListed: true,
    }));
    writeFact(db, "main", "start_fit", JSON.stringify(start));
    writeFact(db, "main", "unanswered", JSON.stringify(unanswered));
    return true;
  });
  database.close();
  if (written === null) throw new Error("mirror.db cannot be written");
}
