import { once } from "node:events";
import { createServer } from "node:http";
import type { Browser } from "playwright-core";
import t, { type Test } from "tap";
import { findBrowser, startBrowser } from "../doubles/browser.ts";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";
import { startWireTap, type WireTap } from "../doubles/wire-tap.ts";
import { type Attack, attackScript, PREFLIGHTED_ATTACKS, SIMPLE_ATTACKS } from "./attacks.ts";

/**
 * A real browser, a real daemon, and a page that knows a valid token. The browser reaches the daemon through a tap, so
 * that each byte of what it sent and got is known, whatever its own tools would show.
 */
const browserPath = findBrowser();
const skip =
  browserPath === null
    ? "there is no chromium here to attack with (apt-get install chromium-headless-shell)"
    : false;

const ANSWER = "what the key paid for";
const PAGE = "<!doctype html><title>a page</title><body>hello</body>";

/** A gateway that would let any page read everything, if it were asked. */
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

async function startScene(t: Test, executablePath: string) {
  const gateway = await startRawGateway(t, openToAll);
  const under = await startWithOneTool(t, gateway.origin, {
    gateway: ["websockets: true"],
    tool: ["token_in_url: true"],
  });
  const pages = await startPages(t);
  const tap = await startWireTap(t, under.port, (bytes) =>
    bytes.startsWith("GET /page ")
      ? `HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n${PAGE}`
      : null,
  );
  const daemonAt = ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "rebind.test"];
  const pageAt = ["evil.test", "127.0.0.1", "localhost"];
  const browser = await startBrowser(t, executablePath, {
    ...Object.fromEntries(daemonAt.map((host) => [`${host}:${under.port}`, tap.port])),
    ...Object.fromEntries(pageAt.map((host) => [`${host}:${pages}`, pages])),
  });
  return { gateway, under, pages, tap, browser };
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

/** Makes the attacks from a page and holds that each was really sent, was refused, and that nothing could be read. */
async function attack(
  t: Test,
  scene: Awaited<ReturnType<typeof startScene>>,
  way: {
    readonly page: string;
    readonly target: string;
    readonly token: string | null;
    readonly statuses: RegExp;
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
    "no page reads an answer",
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
  t.ok(statuses.length > 0, "there are answers");
  t.strictSame(
    statuses.filter((status) => !way.statuses.test(status)),
    [],
    "all of them refuse",
  );
  t.notMatch(received, /access-control-/i, "no answer speaks of CORS");
  t.notOk(received.includes(ANSWER));
  return seenBy(tap, from);
}

async function opened(browser: Browser, url: string) {
  const page = await browser.newPage();
  await page.goto(url);
  return page;
}

t.test("a page that knows a token spends nothing with it", { skip }, async (t) => {
  const scene = await startScene(t, browserPath ?? "");
  const { under, pages, browser, gateway, tap } = scene;
  const from = (host: string) => `http://${host}:${pages}/`;
  const to = (host: string) => `http://${host}:${under.port}`;

  for (const [page, host] of [
    ["evil.test", "127.0.0.1"],
    ["evil.test", "[::1]"],
    // To the browser this is the same site as the daemon, though not its origin.
    ["localhost", "localhost"],
  ] as const) {
    await t.test(`not from ${page} at ${host}`, async (t) => {
      const way = { page: from(page), target: to(host), token: under.token, statuses: /^403$/ };
      const seen = await attack(t, scene, way);
      for (const { attack, head } of seen) {
        t.match(head, /^(?:origin|sec-fetch-site):/im, `${attack} says that it is a page's`);
      }
      const asked = PREFLIGHTED_ATTACKS.map(({ name }) => name);
      t.strictSame(
        seen.filter(({ method, attack }) => method !== "OPTIONS" && asked.includes(attack)),
        [],
        "what needs leave does not get it, and is not sent",
      );
    });
  }

  await t.test("not without the token either", async (t) => {
    const way = { page: from("evil.test"), target: to("127.0.0.1"), token: null, statuses: /^403$/ };
    await attack(t, scene, way, SIMPLE_ATTACKS);
  });

  for (const host of ["0.0.0.0", "rebind.test"]) {
    await t.test(`not at ${host}, which leads to the daemon by a trick only`, async (t) => {
      const way = { page: from("evil.test"), target: to(host), token: under.token, statuses: /^421$/ };
      const seen = await attack(t, scene, way);
      // To such an address the browser sends no Sec-Fetch-Site, and a GET has no Origin: its Host alone tells.
      t.ok(seen.some(({ head }) => !/^(?:origin|sec-fetch-[a-z]+):/im.test(head)));
    });
  }

  await t.test("not from a name of its own that was turned to the daemon's address", async (t) => {
    // The page came from the attacker's address, before its name was turned to 127.0.0.1: all this is same-origin.
    const before = tap.connections.length;
    const page = await opened(browser, `${to("rebind.test")}/page`);
    const asked: { status: number; text: string }[] = await page.evaluate(sameOrigin(under.token));
    t.equal(asked.length, 7);
    for (const { status, text } of asked) {
      t.equal(status, 421);
      t.notOk(text.includes(ANSWER));
      t.notOk(text.includes(under.token));
    }
    const socket = await page.evaluate(`new Promise((done) => {
      const socket = new WebSocket("ws://rebind.test:${under.port}/t/${under.token}/v1/realtime");
      socket.onopen = () => done("open");
      socket.onerror = () => done("refused");
    })`);
    t.equal(socket, "refused");
    const heads = tap.connections.slice(before).map((connection) => connection.sent());
    t.notMatch(heads.join(), /sec-fetch-site/i, "the browser holds it for a site like any other");
    for (const path of ["/healthz", "/v1/models", `/t/${under.token}/v1/models`]) {
      const answer = await page.goto(`${to("rebind.test")}${path}`);
      t.equal(answer?.status(), 421, "to visit it is no better");
    }
    t.equal(gateway.calls.length, 0);
  });

  await t.test("and a person who types the address sees a refusal", async (t) => {
    const page = await browser.newPage();
    for (const host of ["127.0.0.1", "localhost", "[::1]"]) {
      const answer = await page.goto(`${to(host)}/t/${under.token}/v1/models`);
      t.equal(answer?.status(), 403);
      t.equal(answer?.headers()["x-keybearer-refusal"], "browser-request");
    }
    t.equal(gateway.calls.length, 0);
  });

  await t.test("while a program that shows it is served", async (t) => {
    const { token, url } = under;
    const inHeader = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
    t.equal(await inHeader.text(), ANSWER);
    t.equal(await (await fetch(`${url}/t/${token}/v1/models`)).text(), ANSWER);
    t.equal(gateway.calls.length, 2);
    await stillHealthy(t, under, [token, under.key]);
  });
});

/** What a page asks for that the browser takes to be of the daemon's own origin. */
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

t.test("an origin that a tool allows is let in alone, and reads nothing either", { skip }, async (t) => {
  const gateway = await startRawGateway(t, openToAll);
  const pages = await startPages(t);
  const otherPort = await startPages(t);
  const under = await startWithOneTool(t, gateway.origin, {
    tool: ["token_in_url: true", `allow_origins: ["http://app.test:${pages}"]`],
  });
  const browser = await startBrowser(t, browserPath ?? "", {
    [`127.0.0.1:${under.port}`]: under.port,
    [`app.test:${pages}`]: pages,
    [`app.test:${otherPort}`]: otherPort,
    [`evil.test:${pages}`]: pages,
  });
  const asking = `fetch("${under.url}/t/${under.token}/v1/models").then((answer) => answer.text(), () => "nothing")`;
  for (const origin of [`http://evil.test:${pages}`, `http://app.test:${otherPort}`]) {
    const page = await opened(browser, origin);
    t.equal(await page.evaluate(asking), "nothing");
    t.equal(gateway.calls.length, 0, `${origin} is not it`);
  }
  const app = await opened(browser, `http://app.test:${pages}/`);
  t.equal(await app.evaluate(asking), "nothing", "there is no CORS on this port");
  t.equal(gateway.calls.length, 1, "and so the guard is what stopped the others");
  t.strictSame(gateway.calls[0]?.header("origin"), [], "the gateway does not hear of the page");
  t.strictSame(gateway.calls[0]?.header("referer"), []);
});
