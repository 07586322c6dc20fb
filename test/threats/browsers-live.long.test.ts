import { once } from "node:events";
import { createServer } from "node:http";
import type { Browser } from "playwright-core";
import t, { type Test } from "tap";
import { findBrowser, startBrowser } from "../doubles/browser.ts";
import { canaryKey, freshToken, startUnderTest, stillHealthy } from "../doubles/daemon-under-test.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";
import { startWireTap, type WireTap } from "../doubles/wire-tap.ts";
import { type Attack, attackScript, PREFLIGHTED_ATTACKS, SIMPLE_ATTACKS } from "./page-attacks.ts";

/**
 * The cases of browsers.test.ts with a real browser, a real daemon, and a page that knows a valid token. The browser reaches
 * the daemon through a tap, which records each byte.
 */
const browserPath = findBrowser();
const skip =
  browserPath === null ? "no Chromium on this machine (apt-get install chromium-headless-shell)" : false;

const ANSWER = "what the key paid for";
const PAGE = "<!doctype html><title>a page</title><body>hello</body>";

/** A gateway that would let any page read its answers. */
function openToAll(call: GatewayCall): void {
  const headers = {
    "Access-Control-Allow-Origin": call.header("origin")[0] ?? "*",
    "Access-Control-Allow-Headers": "*, authorization",
    "Access-Control-Allow-Private-Network": "true",
    "Content-Type": "text/plain",
  };
  call.answer("200 OK", headers, ANSWER);
}

/** Serves the hostile page, and redirects where a path asks for it. */
async function startPages(t: Test): Promise<number> {
  const server = createServer((req, res) => {
    const to = new URL(req.url ?? "/", "http://page.test").searchParams.get("to");
    if (to !== null) res.writeHead(307, { location: to });
    else res.writeHead(200, { "content-type": "text/html" });
    res.end(PAGE);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** A daemon with two tools: codex allows no origin, app allows app.test. */
async function startScene(t: Test, executablePath: string) {
  const gateway = await startRawGateway(t, openToAll);
  const pages = await startPages(t);
  const otherPages = await startPages(t);
  const tool = (more: string) => {
    const { token, hash } = freshToken();
    const key = canaryKey();
    return { token, key, yaml: `{ key: ${key}, token: "${hash}", token_in_url: true${more} }` };
  };
  const codex = tool("");
  const app = tool(`, allow_origins: ["http://app.test:${pages}"]`);
  const under = await startUnderTest(
    t,
    `gateways: { main: { base_url: "${gateway.origin}/v1", websockets: true } }
tools: { codex: ${codex.yaml}, app: ${app.yaml} }
`,
  );
  const { port } = under.daemon;
  const tap = await startWireTap(t, port, (bytes) =>
    bytes.startsWith("GET /page ")
      ? `HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n${PAGE}`
      : null,
  );
  const daemonAt = ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "rebind.test"];
  const pageAt = ["evil.test", "127.0.0.1", "localhost", "app.test"];
  const browser = await startBrowser(t, executablePath, {
    ...Object.fromEntries(daemonAt.map((host) => [`${host}:${port}`, tap.port])),
    ...Object.fromEntries(pageAt.map((host) => [`${host}:${pages}`, pages])),
    [`app.test:${otherPages}`]: otherPages,
  });
  return { gateway, under, port, pages, otherPages, codex, app, tap, browser };
}

interface Seen {
  readonly method: string;
  readonly attack: string;
  readonly head: string;
}

function seenBy(tap: WireTap, from: number): Seen[] {
  const sent = tap.connections
    .slice(from)
    .map((connection) => connection.sent())
    .join("\n");
  return [...sent.matchAll(/([A-Z]+) \S*?[?&]attack=([a-z-]+)\.\S* HTTP\/1\.1\r\n([\s\S]*?)\r\n\r\n/g)].map(
    ([, method = "", attack = "", head = ""]) => ({ method, attack, head }),
  );
}

/** Makes the attacks from a page. Each must be sent and refused, and the page must read nothing. */
async function attack(
  t: Test,
  scene: Awaited<ReturnType<typeof startScene>>,
  way: {
    readonly page: string;
    readonly target: string;
    readonly token: string | null;
    readonly status: string;
  },
  attacks: readonly Attack[] = [...SIMPLE_ATTACKS, ...PREFLIGHTED_ATTACKS],
): Promise<Seen[]> {
  const { tap, gateway } = scene;
  const from = tap.connections.length;
  const page = await opened(scene.browser, way.page);
  const result: Record<string, string> = await page.evaluate(attackScript(attacks, way.target, way.token));
  const names = (seen: readonly Seen[]) => new Set(seen.map(({ attack }) => attack));
  await until(
    `every attack is sent, but ${attacks.map(({ name }) => name).filter((name) => !names(seenBy(tap, from)).has(name))} is not`,
    () => names(seenBy(tap, from)).size === attacks.length,
  );
  await page.close();
  t.strictSame(
    Object.entries(result).filter(([, text]) => text.includes(ANSWER) || text === "open" || /^ok/.test(text)),
    [],
    "the page reads no answer",
  );
  t.strictSame(
    gateway.calls.map(({ head }) => head),
    [],
    "nothing reaches the gateway",
  );
  const received = tap.connections
    .slice(from)
    .map((connection) => connection.received())
    .join("\n");
  const statuses = [...received.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => status ?? "");
  t.strictSame([...new Set(statuses)], [way.status], "every answer is a refusal");
  t.notMatch(received, /access-control-/i, "no answer has a CORS header");
  t.notOk(received.includes(ANSWER));
  return seenBy(tap, from);
}

async function opened(browser: Browser, url: string) {
  const page = await browser.newPage();
  await page.goto(url);
  return page;
}

/** What a page requests that the browser takes for the daemon's own origin. */
function sameOrigin(token: string): string {
  return `Promise.all([
    ["/healthz", {}],
    ["/", {}],
    ["/v1/models", { headers: { authorization: "Bearer ${token}" } }],
    ["/v1/models", { headers: { "x-api-key": "${token}" } }],
    ["/t/${token}/v1/models", {}],
    ["/v1/models", { method: "DELETE", headers: { authorization: "Bearer ${token}" } }],
    ["/v1/chat/completions", { method: "POST", headers: { authorization: "Bearer ${token}" }, body: "{}" }],
  ].map(async ([path, init]) => {
    const answer = await fetch(path, init);
    return { status: answer.status, text: await answer.text() };
  }))`;
}

t.test("a page in a real browser that knows a token spends nothing", { skip }, async (t) => {
  const scene = await startScene(t, browserPath ?? "");
  const { under, port, pages, otherPages, codex, app, browser, gateway, tap } = scene;
  const { token } = codex;
  const from = (host: string) => `http://${host}:${pages}/`;
  const to = (host: string) => `http://${host}:${port}`;

  // To the browser, localhost on another port is the same site as the daemon, though not its origin.
  const origins = [
    ["evil.test", "127.0.0.1"],
    ["localhost", "localhost"],
    ["evil.test", "[::1]"],
  ] as const;
  for (const [page, host] of origins) {
    await t.test(`a page of ${page} is refused at ${host}`, async (t) => {
      const seen = await attack(t, scene, { page: from(page), target: to(host), token, status: "403" });
      for (const { attack, head } of seen) {
        t.match(head, /^(?:origin|sec-fetch-site):/im, `${attack} has a header of a browser`);
      }
      const preflighted = PREFLIGHTED_ATTACKS.map(({ name }) => name);
      t.strictSame(
        seen.filter(({ method, attack }) => method !== "OPTIONS" && preflighted.includes(attack)),
        [],
        "a request whose preflight is refused is not sent",
      );
    });
  }

  await t.test("a page without the token is refused", async (t) => {
    const way = { page: from("evil.test"), target: to("127.0.0.1"), token: null, status: "403" };
    await attack(t, scene, way, SIMPLE_ATTACKS);
  });

  for (const host of ["0.0.0.0", "rebind.test"]) {
    await t.test(`a page is refused at ${host}, which leads to the daemon`, async (t) => {
      const way = { page: from("evil.test"), target: to(host), token, status: "421" };
      const seen = await attack(t, scene, way);
      // To such an address the browser sends no Sec-Fetch-Site, and a GET has no Origin. Only its Host shows the attack.
      t.ok(seen.some(({ head }) => !/^(?:origin|sec-fetch-[a-z]+):/im.test(head)));
    });
  }

  await t.test("a page of a rebound name is refused", async (t) => {
    // The page came from the attacker's address, before its name led to 127.0.0.1. So all this is same-origin.
    const before = tap.connections.length;
    const page = await opened(browser, `${to("rebind.test")}/page`);
    const answers: { status: number; text: string }[] = await page.evaluate(sameOrigin(token));
    t.equal(answers.length, 7);
    for (const { status, text } of answers) {
      t.equal(status, 421);
      t.notOk(text.includes(ANSWER));
      t.notOk(text.includes(token));
    }
    const socket = await page.evaluate(`new Promise((done) => {
      const socket = new WebSocket("ws://rebind.test:${port}/t/${token}/v1/realtime");
      socket.onopen = () => done("open");
      socket.onerror = () => done("refused");
    })`);
    t.equal(socket, "refused");
    const heads = tap.connections.slice(before).map((connection) => connection.sent());
    t.notMatch(heads.join(), /sec-fetch-site/i, "the browser sends no sign of it");
    for (const path of ["/healthz", "/v1/models", `/t/${token}/v1/models`]) {
      t.equal((await page.goto(`${to("rebind.test")}${path}`))?.status(), 421, `visited: ${path}`);
    }
    t.equal(gateway.calls.length, 0);
    await page.close();
  });

  await t.test("a person who types the address sees a refusal", async (t) => {
    const page = await browser.newPage();
    for (const host of ["127.0.0.1", "localhost", "[::1]"]) {
      const answer = await page.goto(`${to(host)}/t/${token}/v1/models`);
      t.equal(answer?.status(), 403);
      t.equal(answer?.headers()["x-keybearer-refusal"], "browser-request");
    }
    t.equal(gateway.calls.length, 0);
    await page.close();
  });

  await t.test("only the allowed origin passes the guard, and it reads nothing either", async (t) => {
    const request = `fetch("${to("127.0.0.1")}/t/${app.token}/v1/models").then((answer) => answer.text(), () => "nothing")`;
    for (const origin of [`http://evil.test:${pages}`, `http://app.test:${otherPages}`]) {
      const page = await opened(browser, origin);
      t.equal(await page.evaluate(request), "nothing");
      t.equal(gateway.calls.length, 0, `${origin} is not allowed`);
    }
    const page = await opened(browser, from("app.test"));
    t.equal(await page.evaluate(request), "nothing", "no answer has a CORS header");
    t.equal(gateway.calls.length, 1, "the guard is what stopped the others");
    t.strictSame(gateway.calls[0]?.header("origin"), [], "the page's headers are not forwarded");
    t.strictSame(gateway.calls[0]?.header("referer"), []);
  });

  await stillHealthy(t, under, [codex.token, codex.key, app.token, app.key]);
});
