import type { Browser } from "playwright-core";
import type { Test } from "tap";
import type { Status } from "../../src/control/status.ts";
import type { Clock } from "../../src/core/clock.ts";
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

/** Runs if a text is rendered as markup. */
export const MARKUP = `<img src=x onerror="window.ran=1"><script>window.ran=1</script>`;
/** A bidirectional override, and a bell. */
const STEERING = "ab\u202Edc\u0007\u2066e";
/** The same as the page shows it. A bell does not reach the log. */
export const SPELLED = "ab\\u{202e}dc\uFFFD\\u{2066}e";
export const STOLEN = `stolen ${MARKUP}`;

type ToolName = "codex" | "writer" | "broken";

export interface DashboardSetup {
  readonly browser: Browser;
  /** Between the browser and the dashboard: every byte that a page got. */
  readonly tap: WireTap;
  /** http://localhost:port, of the dashboard. */
  readonly origin: string;
  readonly port: number;
  readonly config: string;
  readonly console: ConsoleDouble;
  readonly paced: PacedGateway;
  readonly tools: Readonly<Record<ToolName, Caller>>;
  /** The daemon that runs now. */
  under(): DaemonUnderTest;
  stop(): Promise<void>;
  restart(): Promise<void>;
  /** What `keybearer open --print` prints. */
  address(): Promise<string>;
  chat(tool: ToolName, model: string): Promise<Response>;
  /** What must be in no byte that a page gets. */
  secrets(): readonly string[];
}

/** A page of another site. */
const FOREIGN_PAGE =
  "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n" +
  "<!doctype html><title>a page</title><body>hello</body>";

/**
 * A browser, and a daemon with three tools: one whose gateway has a console, one whose streams can be stopped, and one
 * whose key is refused in a text full of markup. Every name of `elsewhere` leads to the tap, which serves a page at /page.
 */
export async function startDashboardSetup(
  t: Test,
  executablePath: string,
  elsewhere: (port: number) => readonly string[],
): Promise<DashboardSetup> {
  const clock = lateClock();
  const port = await freePort();
  const home = await newHome(t);
  const console = await startConsole(t, "sub2api", { now: clock.now, limits: false });
  const paced = await startPacedGateway(t);
  const error = { message: `no ${MARKUP} ${STEERING}`, type: "x", code: "invalid_api_key" };
  const angry = await startRawGateway(t, (call) =>
    call.answer("401 Unauthorized", { "content-type": "application/json" }, JSON.stringify({ error })),
  );
  const tools = { codex: caller("codex"), writer: caller("writer"), broken: caller("broken") };
  console.addKey({ name: `codex ${MARKUP}`, key: tools.codex.key });
  const toolLine = ({ name, key, hash }: Caller, gateway: string, more = "") =>
    `  ${name}: { gateway: ${gateway}, key: ${key}, token: "${hash}"${more} }`;
  const config = `listen: localhost:0
dashboard: { listen: localhost:${port}, when: always }
gateways:
  main:
    base_url: ${console.url}/v1
    console:
${console.config.map((line) => `      ${line}`).join("\n")}
  paced: { base_url: ${paced.baseUrl} }
  angry: { base_url: ${angry.baseUrl} }
tools:
  # kept as it is
${toolLine(tools.codex, "main", ", limits: { requests: 1000/minute, tokens: 1M/day }")}
${toolLine(tools.writer, "paced")}
${toolLine(tools.broken, "angry")}
prices: { priced: { input: 1, output: 2 } }
`;
  let under = await startUnderTest(t, config, { clock, home });
  const chat = (tool: ToolName, model: string) =>
    fetch(`${under.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${tools[tool].token}`, "content-type": "application/json" },
      body: JSON.stringify({ model, messages: [] }),
    });

  // Before the page is opened: plain calls, hostile texts, and a use of the key elsewhere.
  const { socket } = under.paths;
  await consoleIsRead(socket);
  for (const model of ["m", MARKUP, STEERING]) await (await chat("codex", model)).text();
  await (await chat("broken", MARKUP)).text();
  clock.pass(10_000);
  const stolen = { stream: false, input: 40, output: 9, dollars: 0.02, ip: "203.0.113.9" };
  console.bill({ key: tools.codex.key, model: STOLEN, ...stolen });
  clock.pass(45_000);
  await controlOf(socket, "POST", "/sync/main", {});
  await consoleIsRead(socket);
  clock.pass(35_000);

  const tap = await startWireTap(t, port, (bytes) =>
    /^GET \/(?:page|favicon\.ico) /.test(bytes) ? FOREIGN_PAGE : null,
  );
  const names = [`localhost:${port}`, ...elsewhere(port)].map((name) => [name, tap.port]);
  const browser = await startBrowser(t, executablePath, Object.fromEntries(names));
  return {
    browser,
    tap,
    port,
    config,
    console,
    paced,
    tools,
    chat,
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
    secrets() {
      const { password, accessToken } = console.login;
      const ofTools = Object.values(tools).flatMap(({ key, token, hash }) => [
        key,
        token,
        hash.replace("sha256:", ""),
      ]);
      return [...ofTools, password, accessToken];
    },
  };
}

function consoleIsRead(socket: string): Promise<void> {
  return until("the console was read", async () => {
    const { consoles } = await controlOf<Status>(socket, "GET", "/status");
    return consoles.length > 0 && consoles.every(({ state }) => state !== "syncing");
  });
}

function caller(name: string): Caller {
  return { name, key: consoleKey(), ...freshToken() };
}

/** The real time less 90 seconds, until they are passed. */
function lateClock(): Clock & { pass(milliseconds: number): void } {
  const start = 90_000;
  let behind = start;
  return {
    now: () => Date.now() - behind,
    elapsed: () => performance.now() - behind + start,
    pass(milliseconds) {
      behind -= milliseconds;
    },
  };
}
