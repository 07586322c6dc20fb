import { once } from "node:events";
import { Agent, createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import t, { type Test } from "tap";
import { systemClock } from "../../src/core/clock.ts";
import { detectKind } from "../../src/mirror/consoles/detect.ts";
import { HttpClient } from "../../src/mirror/consoles/http.ts";
import { startSandbox } from "../doubles/sandbox.ts";

type Serve = (request: IncomingMessage, response: ServerResponse) => void;

async function served(t: Test, serve: Serve): Promise<string> {
  const server = createServer(serve).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function clientTo(t: Test, url: string) {
  const agent = new Agent();
  t.teardown(() => agent.destroy());
  const { signal } = new AbortController();
  return new HttpClient({ url, clock: systemClock, agent: () => agent, signal, onSkew: () => {} });
}

/** What is not listed is answered with the console's own web page. */
function answering(paths: Record<string, unknown>, headers: Record<string, string> = {}): Serve {
  return (request, response) => {
    const body = paths[request.url ?? ""];
    response.writeHead(200, {
      "content-type": body === undefined ? "text/html" : "application/json",
      ...headers,
    });
    response.end(body === undefined ? "<!doctype html><title>console</title>" : JSON.stringify(body));
  };
}

const STATUS = { success: true, message: "", data: { version: "v0.6.11", quota_per_unit: 500000 } };
const NEW_STATUS = { ...STATUS, data: { ...STATUS.data, quota_display_type: "USD" } };
const SETTINGS = { code: 0, message: "success", data: { site_name: "x", version: "0.1.179" } };

t.test("every kind of console is recognized by its public answers", async (t) => {
  const cases: [string, string, Serve][] = [
    ["new-api by its header", "new-api", answering({}, { "x-new-api-version": "v1.0.0" })],
    ["new-api by its status", "new-api", answering({ "/api/status": NEW_STATUS })],
    ["one-api", "one-api", answering({ "/api/status": STATUS }, { "x-oneapi-request-id": "2026" })],
    ["one-api without the header", "one-api", answering({ "/api/status": STATUS })],
    ["sub2api", "sub2api", answering({ "/api/v1/settings/public": SETTINGS })],
    ["litellm", "litellm", answering({ "/health/liveliness": "I'm alive!" })],
    ["litellm by the header of its answers", "litellm", answering({}, { "x-litellm-version": "1.97.0" })],
  ];
  for (const [name, kind, serve] of cases) {
    const url = await served(t, serve);
    const found = await detectKind(clientTo(t, url), url);
    t.equal(found, kind, name);
  }
});

t.test("the sandbox's console is a sub2api", async (t) => {
  const sandbox = await startSandbox(t);
  t.equal(await detectKind(clientTo(t, sandbox.origin), sandbox.origin), "sub2api");
});

t.test("openrouter is recognized by its host, without a request", async (t) => {
  const client = { send: () => Promise.reject(new Error("asked")) };
  t.equal(await detectKind(client, "https://openrouter.ai/api/v1"), "openrouter");
});

t.test("the error for an unknown console says how to configure its kind", async (t) => {
  for (const serve of [
    answering({}),
    answering({ "/api/v1/settings/public": { code: 0, data: { a: 1 } } }),
  ]) {
    const url = await served(t, serve);
    await t.rejects(detectKind(clientTo(t, url), url), {
      kind: "not-a-console",
      message: /what kind it is.*kind:/,
    });
  }
});

t.test("a console that fails or limits requests is reported as that, not as unknown", async (t) => {
  const failing = await served(t, (_request, response) => response.writeHead(502).end());
  await t.rejects(detectKind(clientTo(t, failing), failing), { name: "Error", kind: "failing" });
  const busy = await served(t, (_request, response) => response.writeHead(429, { "retry-after": "9" }).end());
  await t.rejects(detectKind(clientTo(t, busy), busy), {
    name: "Error",
    kind: "rate-limited",
    retryAfter: 9,
  });
});

t.test("a redirect is not followed, and no credential is sent", async (t) => {
  const seen: string[] = [];
  const elsewhere = await served(t, (request, response) => {
    seen.push(request.url ?? "");
    answering({ "/api/v1/settings/public": SETTINGS })(request, response);
  });
  const url = await served(t, (request, response) => {
    t.equal(request.headers.authorization, undefined);
    response.writeHead(301, { location: `${elsewhere}${request.url}` }).end();
  });
  await t.rejects(detectKind(clientTo(t, url), url), { name: "Error", kind: "not-a-console" });
  t.same(seen, []);
});
