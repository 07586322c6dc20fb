import fc from "fast-check";
import t from "tap";
import { Secret } from "../../src/core/secret.ts";
import {
  addCause,
  byName,
  keyHeaderFor,
  reasonPhrase,
  requestHeaders,
  responseHeaders,
  withCallId,
} from "../../src/proxy/headers.ts";
import { type Cause, causeFor } from "../../src/proxy/key-health/cause.ts";
import { gatewayOf } from "../doubles/parsed-config.ts";

const key = new Secret("sk-canary-0123456789");
const out = (
  rawHeaders: string[],
  keyHeader: "authorization" | "x-api-key" | "x-goog-api-key" = "authorization",
  origin = "https://gateway.example.com",
  readable: ((encoding: string) => boolean) | null = null,
) => ({
  ...byName(
    requestHeaders({
      method: "GET",
      rawHeaders,
      host: new URL(origin).host,
      key,
      keyHeader,
      readable,
      bodyLength: null,
    }),
  ),
});

t.test("a metered response is only requested in encodings that keybearer can read", async (t) => {
  const withoutZstd = (encoding: string) => ["gzip", "deflate", "br"].includes(encoding);
  const asked = (accepted: string[], readable: ((encoding: string) => boolean) | null) =>
    out(
      accepted.flatMap((value) => ["Accept-Encoding", value]),
      "authorization",
      "https://gateway.example.com",
      readable,
    )["Accept-Encoding"];
  t.equal(asked(["gzip, deflate, br, zstd"], withoutZstd), "gzip, deflate, br");
  t.equal(asked(["zstd;q=1.0, GZIP;q=0.5, *;q=0.1"], withoutZstd), "GZIP;q=0.5");
  t.equal(asked(["zstd"], withoutZstd), "identity", "what would be left empty asks for plain bytes");
  t.strictSame(asked(["gzip", "zstd"], withoutZstd), ["gzip", "identity"]);
  t.equal(asked(["identity;q=0, br"], withoutZstd), "identity;q=0, br");
  t.equal(asked([], withoutZstd), undefined, "nothing is added where nothing was asked for");
  t.equal(
    asked(["gzip, zstd, *"], null),
    "gzip, zstd, *",
    "nothing changes if keybearer does not read the response",
  );
});

t.test("end-to-end headers pass, and the key is added last", async (t) => {
  const headers = out(["Accept", "a", "anthropic-version", "1", "X-Trace", "x"]);
  t.strictSame(headers, {
    Host: "gateway.example.com",
    Accept: "a",
    "anthropic-version": "1",
    "X-Trace": "x",
    authorization: "Bearer sk-canary-0123456789",
  });
  t.equal(Object.keys(headers).at(-1), "authorization");
  t.equal(out([], "x-api-key")["x-api-key"], "sk-canary-0123456789", "bare in the other headers");
});

t.test("an own call id replaces the client's, however often and in whatever case it sent one", async (t) => {
  const sent = ["Host", "h", "X-LiteLLM-Call-Id", "a", "Accept", "x", "x-litellm-call-id", "b"];
  t.strictSame(withCallId(sent, "01KA"), ["Host", "h", "Accept", "x", "x-litellm-call-id", "01KA"]);
});

t.test(
  "hop-by-hop headers, credentials in any spelling and headers about this machine are dropped",
  async (t) => {
    const names = [
      ...[
        "Connection",
        "Keep-Alive",
        "Proxy-Authenticate",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Proxy-X",
        "TE",
      ],
      ...[
        "Trailer",
        "Upgrade",
        "Authorization",
        "X-Api-Key",
        "Api-Key",
        "X-Goog-Api-Key",
        "x_api_key",
        "API_KEY",
      ],
      ...[
        "authorization_",
        "_x-goog_api_key",
        "Host",
        "Cookie",
        "Origin",
        "Referer",
        "Forwarded",
        "Via",
        "X-Real-IP",
      ],
      ...["X-Forwarded-For", "X-Forwarded-Host", "Sec-Fetch-Mode", "Expect", "x-keybearer-hops"],
    ];
    for (const name of names) {
      t.strictSame(Object.keys(out([name, "client-value"])), ["Host", "authorization"], name);
      t.notOk(JSON.stringify(out([name, "client-value"])).includes("client-value"));
    }
  },
);

t.test("headers that Connection names are dropped, except those the request needs", async (t) => {
  const headers = out([
    ...[
      "Connection",
      "X-One, authorization ,Content-Length",
      "connection",
      "X-Two",
      "X-One",
      "1",
      "x-two",
      "2",
    ],
    ...["Content-Length", "5", "X-Three", "3"],
  ]);
  t.strictSame(Object.keys(headers), ["Host", "Content-Length", "X-Three", "authorization"]);
  t.equal(headers.authorization, "Bearer sk-canary-0123456789", "the key cannot be nominated away");
});

t.test("a chunked body stays chunked, with any method, and has no length beside it", async (t) => {
  const headers = out(["Transfer-Encoding", "chunked"]);
  t.equal(headers["transfer-encoding"], "chunked");
  t.equal(headers["content-length"], undefined);
  t.equal(
    out(["Connection", "Transfer-Encoding", "Transfer-Encoding", "chunked"])["transfer-encoding"],
    "chunked",
  );
});

t.test("repeated headers keep their order, and no header name is special", async (t) => {
  t.strictSame(out(["X-A", "1", "x-a", "2", "X-A", "3"])["X-A"], ["1", "2", "3"]);
  t.strictSame(out(["constructor", "1"]).constructor, "1");
  t.ok(Object.hasOwn(out(["__proto__", "1"]), "__proto__"));
});

t.test("hops are counted only towards this machine", async (t) => {
  for (const origin of ["http://localhost:1", "http://127.0.0.1:1", "http://127.9.9.9:1", "http://[::1]:1"]) {
    t.equal(out([], "authorization", origin)["x-keybearer-hops"], "1", origin);
    t.equal(out(["X-Keybearer-Hops", "1"], "authorization", origin)["x-keybearer-hops"], "2");
  }
  t.equal(out(["X-Keybearer-Hops", "1"])["x-keybearer-hops"], undefined);
});

t.test("the key is added once and the client's credentials are dropped, whatever its headers", async () => {
  const name = fc.constantFrom(
    ...["Authorization", "authorization", "X-API-Key", "x_api_key", "api-key", "Api_Key", "x-goog-api-key"],
    ...[
      "Connection",
      "Host",
      "X-A",
      "constructor",
      "__proto__",
      "Transfer-Encoding",
      "Content-Length",
      "cookie",
    ],
  );
  const value = fc.constantFrom("theirs", "Authorization", "x-api-key, host", "chunked", "close");
  const keyHeaders = ["authorization", "x-api-key", "x-goog-api-key"] as const;
  fc.assert(
    fc.property(fc.array(fc.tuple(name, value)), fc.constantFrom(...keyHeaders), (pairs, keyHeader) => {
      const headers = out(pairs.flat(), keyHeader);
      const shown = Object.entries(headers).filter(([, one]) => String(one).includes("sk-canary"));
      const others = keyHeaders.filter((other) => other !== keyHeader && headers[other] !== undefined);
      return (
        shown.length === 1 &&
        shown[0]?.[0] === keyHeader &&
        others.length === 0 &&
        headers.Host === "gateway.example.com"
      );
    }),
  );
});

t.test("the header of the key follows the setting, else the protocol, else the caller", async (t) => {
  const B = { authorization: "x" };
  const X = { "x-api-key": "x" };
  const rows: [string, "openai" | "messages" | "gemini", Record<string, string>, string][] = [
    ["auto", "openai", B, "authorization"],
    ["auto", "openai", X, "authorization"],
    ["auto", "messages", B, "authorization"],
    ["auto", "messages", X, "x-api-key"],
    ["auto", "messages", { ...B, ...X }, "authorization"],
    ["auto", "messages", {}, "authorization"],
    ["auto", "messages", { "api-key": "x" }, "authorization"],
    ["auto", "gemini", B, "x-goog-api-key"],
    ["auto", "gemini", X, "x-goog-api-key"],
    ["bearer", "messages", X, "authorization"],
    ["bearer", "gemini", X, "authorization"],
    ["x-api-key", "openai", B, "x-api-key"],
    ["x-api-key", "gemini", B, "x-api-key"],
  ];
  for (const [setting, protocol, headers, keyHeader] of rows) {
    const gateway = gatewayOf(`base_url: "https://gateway.example.com/v1", key_header: ${setting}`);
    t.equal(
      keyHeaderFor(protocol, gateway, headers),
      keyHeader,
      `${setting} ${protocol} ${Object.keys(headers)}`,
    );
  }
});

t.test("responses keep the order and case of the headers that may pass", async (t) => {
  t.strictSame(
    responseHeaders(
      [
        ...[
          "X-B",
          "1",
          "x-a",
          "2",
          "X-B",
          "3",
          "Set-Cookie",
          "x",
          "Connection",
          "X-Gone",
          "x-gone",
          "1",
          "Keep-Alive",
          "1",
        ],
        ...[
          "Access-Control-Allow-Origin",
          "*",
          "X-Keybearer-Refusal",
          "x",
          "Transfer-Encoding",
          "chunked",
          "Upgrade",
          "h2c",
        ],
        ...["X-Echo", "is sk-canary-0123456789 yours", "Content-Length", "5"],
      ],
      key,
    ),
    ["X-B", "1", "x-a", "2", "X-B", "3", "X-Echo", "is [redacted] yours", "Content-Length", "5"],
  );
});

t.test("a cause has a header, and causes that only the owner can fix say not to retry", async (t) => {
  const cause = (name: Cause["name"], detail: Cause["detail"], canRetry: boolean): Cause => ({
    ...causeFor("key-quota"),
    name,
    detail,
    canRetry,
  });
  const withCause = (headers: string[], given: Cause | null) => {
    addCause(headers, given);
    return headers;
  };
  t.strictSame(withCause(["A", "1"], null), ["A", "1"]);
  t.strictSame(withCause(["X-Should-Retry", "true"], cause("rate-limit", null, true)), [
    ...["X-Should-Retry", "true", "x-keybearer-cause", "rate-limit"],
  ]);
  t.strictSame(withCause(["X-Should-Retry", "true"], cause("balance-or-quota", "key-quota", false)), [
    ...["x-keybearer-cause", "balance-or-quota", "x-keybearer-cause-detail", "key-quota"],
    ...["x-should-retry", "false"],
  ]);
});

t.test("a reason phrase passes without the key and without invalid characters", async (t) => {
  t.equal(reasonPhrase("Not Found", key), "Not Found");
  t.equal(reasonPhrase("no \x00\x1b[31msk-canary-0123456789\x7f \xe9", key), "no [31m[redacted] \xe9");
});
