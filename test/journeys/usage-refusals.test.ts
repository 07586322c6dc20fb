import t, { type Test } from "tap";
import type { RefusalCode } from "../../src/core/refusal.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import {
  canaryKey,
  type DaemonUnderTest,
  freshToken,
  startUnderTest,
  stillHealthy,
} from "../doubles/daemon-under-test.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { type RawGateway, startRawGateway } from "../doubles/raw-gateway.ts";
import { post, say } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";
import { faultsIn, finished, recordsIn } from "../doubles/usage-file.ts";

/** What keybearer refuses is recorded as well, and is never taken for a call to the gateway. */

interface Scene extends DaemonUnderTest {
  readonly gateway: RawGateway;
  readonly host: string;
  readonly tokens: Readonly<Record<"codex" | "idle" | "old" | "keyless", string>>;
  readonly key: string;
}

async function scene(t: Test): Promise<Scene> {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const [codex, idle, old, keyless] = [freshToken(), freshToken(), freshToken(), freshToken()];
  const key = canaryKey();
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.origin}/v1
tools:
  codex: { key: ${key}, token: "${codex.hash}" }
  idle: { key: ${key}, token: "${idle.hash}", enabled: false }
  old: { key: ${key}, token: "${old.hash}", expires: 2020-01-01 }
  keyless: { key: env:NOT_SET_ANYWHERE, token: "${keyless.hash}" }
`,
  );
  const tokens = { codex: codex.token, idle: idle.token, old: old.token, keyless: keyless.token };
  return { ...under, gateway, host: `127.0.0.1:${under.daemon.port}`, tokens, key };
}

const BODY = '{"model":"gpt-x","messages":[]}';

interface Case {
  readonly bytes: string;
  readonly code: RefusalCode;
  readonly status: number;
  readonly tool?: string;
  readonly endpoint?: string;
  readonly protocol?: UsageRecord["protocol"];
}

function cases({ host, tokens, key }: Scene): Record<string, Case> {
  const chat = (headers: Record<string, string>, path = "/v1/chat/completions") =>
    post(`POST ${path}`, { Host: host, ...headers }, BODY);
  const as = (token: string) => ({ Authorization: `Bearer ${token}` });
  const endpoint = "/v1/chat/completions";
  const good = as(tokens.codex);
  const websocket = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13" };
  const asking = head("GET /v1/responses", { Host: host, ...good, ...websocket });
  return {
    "another host": { bytes: chat({ ...good, Host: "evil.example" }), code: "host-not-allowed", status: 421 },
    "a web page": {
      bytes: chat({ ...good, Origin: "https://evil.example" }),
      code: "browser-request",
      status: 403,
    },
    "a strange target": { bytes: chat(good, "//evil.example/v1"), code: "bad-request", status: 400 },
    "a loop": { bytes: chat({ ...good, "X-Keybearer-Hops": "2" }), code: "loop", status: 508 },
    "a long address": {
      bytes: chat(good, `/v1/${"x".repeat(8200)}`),
      code: "headers-too-large",
      status: 431,
    },
    "no token": { bytes: chat({}), code: "token-missing", status: 401, endpoint },
    "half a token": {
      bytes: chat(as(tokens.codex.slice(0, -3))),
      code: "token-incomplete",
      status: 401,
      endpoint,
    },
    "an unknown token": { bytes: chat(as(freshToken().token)), code: "token-unknown", status: 401, endpoint },
    "a real key": { bytes: chat(as(key)), code: "foreign-key", status: 400, endpoint },
    "in the messages protocol": {
      bytes: chat(as(freshToken().token), "/v1/messages"),
      code: "token-unknown",
      status: 401,
      endpoint: "/v1/messages",
      protocol: "messages",
    },
    "in the Gemini protocol": {
      bytes: chat({ "x-goog-api-key": freshToken().token }, "/v1beta/models/gemini-x:generateContent"),
      code: "token-unknown",
      status: 401,
      endpoint: "/v1beta/models/gemini-x:generateContent",
      protocol: "gemini",
    },
    "no version": { bytes: chat(good, "/chat/completions"), code: "wrong-base-url", status: 400 },
    "no such path": { bytes: chat(good, "/nothing/here"), code: "wrong-base-url", status: 400 },
    "a token in the path": { bytes: chat(good, `/v1/${tokens.codex}`), code: "bad-request", status: 400 },
    "a key in the query": { bytes: chat(good, `/v1/models?key=${key}`), code: "foreign-key", status: 400 },
    "a disabled tool": {
      bytes: chat(as(tokens.idle)),
      code: "tool-disabled",
      status: 400,
      tool: "idle",
      endpoint,
    },
    "an expired tool": {
      bytes: chat(as(tokens.old)),
      code: "tool-expired",
      status: 400,
      tool: "old",
      endpoint,
    },
    "a key that is not to be had": {
      bytes: chat(as(tokens.keyless)),
      code: "key-unavailable",
      status: 400,
      tool: "keyless",
      endpoint,
    },
    "a websocket of a known tool": {
      bytes: asking,
      code: "websockets-off",
      status: 426,
      tool: "codex",
      endpoint: "/v1/responses",
    },
    "a websocket without a token": {
      bytes: head("GET /v1/responses", { Host: host, ...websocket }),
      code: "websockets-off",
      status: 426,
      endpoint: "/v1/responses",
    },
  };
}

t.test("every refusal has one record, and none reached the gateway", async (t) => {
  const it = await scene(t);
  const all = Object.entries(cases(it));
  for (const [what, { bytes, code, status, tool = null, endpoint = "", protocol = "openai" }] of all) {
    const heard = await say(t, it.daemon.port, bytes);
    t.equal(heard.status, status, what);
    t.equal(heard.headers["x-keybearer-refusal"], code, what);
    const record = await finished(it.paths.usage, heard.headers["x-keybearer-request-id"]);
    t.match(
      record,
      {
        end: "refused",
        refusal: code,
        status,
        tool,
        endpoint,
        protocol,
        gateway: tool === null ? null : "main",
        first_byte_at: null,
        stream: null,
        input_tokens: null,
        tokens_from: "none",
        cost_microdollars: null,
        bytes_out: 0,
        gateway_ids: {},
      },
      what,
    );
    t.ok(record.ended_at !== null && record.ended_at >= record.started_at, `${what}: it has an end`);
  }
  t.equal(it.gateway.connections(), 0);
  t.equal(recordsIn(it.paths.usage).length, all.length);
  t.strictSame(faultsIn(it.paths.usage), []);
  await stillHealthy(t, it, [it.key, ...Object.values(it.tokens)]);
});

t.test("a request that comes while keybearer stops is refused, and recorded", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    if (call.target.endsWith("/first")) call.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
  });
  const { token, hash } = freshToken();
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.origin}/v1\ntools: { codex: { key: ${canaryKey()}, token: "${hash}" } }\n`,
  );
  const client = await openRaw(t, under.daemon.port);
  const auth = { Host: `127.0.0.1:${under.daemon.port}`, Authorization: `Bearer ${token}` };
  client.send(head("GET /v1/first", auth));
  await client.until(/\r\n\r\no$/);
  const stopping = under.daemon.stop(3000);
  // On the connection that is still served.
  client.send(head("GET /v1/second", auth));
  await until("it is settled", () => under.log().some((line) => line.refusal === "shutting-down"));
  gateway.calls[0]?.send("k");
  await client.until("shutting-down");
  await stopping;
  const records = recordsIn(under.paths.usage);
  t.match(
    records.toSorted((a, b) => (a.end ?? "").localeCompare(b.end ?? "")),
    [
      { end: "complete", endpoint: "/v1/first", status: 200, bytes_out: 2 },
      { end: "refused", refusal: "shutting-down", status: 503, tool: null },
    ],
  );
  t.equal(records.length, 2);
});
