import type { Browser } from "playwright-core";
import type { Test } from "tap";
import type { Clock } from "../../src/clock.ts";
import type { Status } from "../../src/control/status.ts";
import { startBrowser } from "./browser.ts";
import { command, newHome } from "./command.ts";
import type { ConsoleDouble } from "./consoles/console-double.ts";
import { startConsole } from "./consoles/start-console.ts";
import { type DaemonUnderTest, freshToken, startUnderTest } from "./daemon-under-test.ts";
import { freePort } from "./listen.ts";
import { type Caller, consoleKey, controlOf } from "./mirror-journey.ts";
import { type PacedGateway, startPacedGateway } from "./paced-gateway.ts";
import { startRawGateway } from "./raw-gateway.ts";
import { until } from "./until.ts";
import { startWireTap, type WireTap } from "./wire-tap.ts";

/** Would be an element, and run, wherever a text is taken for markup. */
export const MARKUP = `<img src=x onerror="window.ran=1"><script>window.ran=1</script>`;
/** Turns what stands behind it around, and rings. */
export const STEERING = "ab\u202Edc\u0007\u2066e";
/** The same as a person sees it, of which a bell does not even reach the log. */
export const SPELLED = "ab\\u{202e}dc\uFFFD\\u{2066}e";
export const STOLEN = `stolen ${MARKUP}`;

/** Time as it is, less what has not passed yet. */
export type LateClock = Clock & { pass(milliseconds: number): void };

export interface DashboardScene {
  readonly browser: Browser;
  /** Between the browser and the dashboard: every byte that a page got. */
  readonly tap: WireTap;
  /** http://localhost:port, of the dashboard. */
  readonly origin: string;
  readonly port: number;
  readonly config: string;
  readonly console: ConsoleDouble;
  readonly paced: PacedGateway;
  readonly tools: Readonly<Record<"codex" | "writer" | "broken", Caller>>;
  /** The daemon that runs now. */
  under(): DaemonUnderTest;
  stop(): Promise<void>;
  restart(): Promise<void>;
  /** What `keybearer open --print` prints. */
  address(): Promise<string>;
  chat(tool: "codex" | "writer" | "broken", model: string): Promise<Response>;
  /** What must be in no byte that a page gets. */
  secrets(): readonly string[];
}

/** What a page of elsewhere is. */
const PAGE = "<!doctype html><title>a page</title><body>hello</body>";

/**
 * A browser, and a daemon with three tools: one whose gateway has a console, one whose streams can be stopped, and one
 * whose key is refused in a text full of markup. Every name of `elsewhere` leads to the tap, where a page waits at /page.
 */
export async function startDashboardScene(
  t: Test,
  executablePath: string,
  elsewhere: (port: number) => readonly string[],
): Promise<DashboardScene> {
  const clock = lateClock(90_000);
  const [port, home] = [await freePort(), await newHome(t)];
  const console = await startConsole(t, "sub2api", { now: clock.now, limits: false });
  const paced = await startPacedGateway(t);
  const angry = await startRawGateway(t, (call) =>
    call.answer(
      "401 Unauthorized",
      { "content-type": "application/json" },
      JSON.stringify({ error: { message: `no ${MARKUP} ${STEERING}`, type: "x", code: "invalid_api_key" } }),
    ),
  );
  const tools = { codex: caller("codex"), writer: caller("writer"), broken: caller("broken") };
  console.addKey({ name: `codex ${MARKUP}`, key: tools.codex.key });
  const config = configOf({ port, console, paced: paced.baseUrl, angry: `${angry.origin}/v1`, tools });
  let under = await startUnderTest(t, config, { clock, home });
  const chat = (tool: keyof typeof tools, model: string) => ask(under.url, tools[tool].token, model);
  await makeHistory({ socket: under.places.socket, clock, console, chat, tools });

  const tap = await startWireTap(t, port, (bytes) =>
    /^GET \/(?:page|favicon\.ico) /.test(bytes)
      ? `HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n${PAGE}`
      : null,
  );
  const names = [`localhost:${port}`, ...elsewhere(port)];
  const browser = await startBrowser(
    t,
    executablePath,
    Object.fromEntries(names.map((name) => [name, tap.port])),
  );
  return {
    ...{ browser, tap, port, config, console, paced, tools, chat },
    origin: `http://localhost:${port}`,
    under: () => under,
    stop: () => under.daemon.stop(0),
    async restart() {
      under = await startUnderTest(t, null, { clock, home });
    },
    async address() {
      const { code, stdout, stderr } = await command(t, home, ["open", "--print"]);
      if (code !== 0) throw new Error(stderr);
      return stdout.trim();
    },
    secrets: () => [
      ...Object.values(tools).flatMap(({ key, token, hash }) => [
        key,
        token,
        hash,
        hash.replace("sha256:", ""),
      ]),
      console.login.password,
      console.login.accessToken,
    ],
  };
}

interface HistoryMeans {
  readonly socket: string;
  readonly clock: LateClock;
  readonly console: ConsoleDouble;
  readonly chat: DashboardScene["chat"];
  readonly tools: DashboardScene["tools"];
}

/** What happened in the minute before somebody looks: plain calls, hostile texts, and a use of the key elsewhere. */
async function makeHistory({ socket, clock, console, chat, tools }: HistoryMeans): Promise<void> {
  const idle = () =>
    until("the console was read", async () => {
      const { consoles } = await controlOf<Status>(socket, "GET", "/status");
      return consoles.length > 0 && consoles.every(({ state }) => state !== "syncing");
    });
  await idle();
  for (const model of ["m", MARKUP, STEERING]) await (await chat("codex", model)).text();
  await (await chat("broken", MARKUP)).text();
  clock.pass(10_000);
  const use = { stream: false, input: 40, output: 9, dollars: 0.02, ip: "203.0.113.9" };
  console.bill({ key: tools.codex.key, model: STOLEN, ...use });
  clock.pass(45_000);
  await controlOf(socket, "POST", "/sync/main", {});
  await idle();
  clock.pass(35_000);
}

interface ConfigMeans {
  readonly port: number;
  readonly console: ConsoleDouble;
  readonly paced: string;
  readonly angry: string;
  readonly tools: DashboardScene["tools"];
}

function configOf({ port, console, paced, angry, tools: { codex, writer, broken } }: ConfigMeans): string {
  return `listen: localhost:0
dashboard: { listen: localhost:${port}, when: always }
gateways:
  main:
    base_url: ${console.url}/v1
    console:
${console.config.map((line) => `      ${line}`).join("\n")}
  paced: { base_url: ${paced} }
  angry: { base_url: ${angry} }
tools:
  # kept as it is
  codex: { gateway: main, key: ${codex.key}, token: "${codex.hash}", limits: { requests: 1000/minute, tokens: 1M/day } }
  writer: { gateway: paced, key: ${writer.key}, token: "${writer.hash}" }
  broken: { gateway: angry, key: ${broken.key}, token: "${broken.hash}" }
prices: { priced: { input: 1, output: 2 } }
`;
}

function caller(name: string): Caller {
  return { name, key: consoleKey(), ...freshToken() };
}

function ask(url: string, token: string, model: string): Promise<Response> {
  return fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ model, messages: [] }),
  });
}

function lateClock(late: number): LateClock {
  let behind = late;
  return {
    now: () => Date.now() - behind,
    elapsed: () => performance.now() - behind + late,
    pass(milliseconds) {
      behind -= milliseconds;
    },
  };
}
