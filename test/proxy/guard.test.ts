import t from "tap";
import { type CheckedHead, guard } from "../../src/proxy/guard.ts";
import { hostsOf } from "../../src/proxy/server.ts";

/* What is no threat of its own, or has many cases. Hosts and origins: test/threats/browsers.test.ts. */

const P = 5397;
const HOSTS = hostsOf(P);
const ORIGINS = ["app://desk.example"];

function head(over: Partial<CheckedHead> & { headers?: string[] } = {}): CheckedHead {
  const { headers = [], ...rest } = over;
  return {
    method: "GET",
    target: "/v1/models",
    rawHeaders: ["Host", `127.0.0.1:${P}`, ...headers],
    ...rest,
  };
}
const refusalOf = (over: Parameters<typeof head>[0]) => guard(head(over), HOSTS, ORIGINS);
const code = (over: Parameters<typeof head>[0]) => refusalOf(over)?.code ?? null;

t.test("a target that is not a plain path is refused", async (t) => {
  for (const target of [
    "//evil.com/x",
    "/\\evil.com",
    "\\\\evil.com",
    "http://evil.com/",
    `http://localhost:${P}/v1/models`,
    "*",
    "",
    "v1/models",
    "?x",
    "/v1/messages#@evil.com",
    "/v1/../admin",
    "/v1/..",
    "/v1/./x",
    "/v1/%2e%2e/x",
    "/v1/%2E./x",
    "/v1/..;/x",
    "/v1/.;x/y",
    "/v1\\..\\x",
    "/v1/..%2fx",
    "/v1/..%5cx",
    "/v1/%09/evil",
    "/v1/%0d%0aX-A:b",
    "/v1/%00",
    "/v1/\tx",
    "/v1/é",
  ]) {
    t.equal(code({ target }), "bad-request", JSON.stringify(target));
  }
  for (const target of [
    "/v1//x",
    "/v1/a%2fb",
    "/v1/...",
    "/v1/.well-known",
    "/v1/x?a=/../b&c=//d",
    "/v1/a..b",
  ]) {
    t.equal(code({ target }), null, target);
  }
});

t.test("CONNECT and TRACE are not served", async (t) => {
  for (const method of ["CONNECT", "TRACE"]) t.equal(code({ method }), "bad-request");
  for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
    t.equal(code({ method }), null);
});

t.test("transfer-encoding is chunked, once, and not with DELETE or OPTIONS", async (t) => {
  const coded = (method: string, ...values: string[]) =>
    code({ method, headers: values.flatMap((value) => ["Transfer-Encoding", value]) });
  t.equal(coded("POST", "chunked"), null);
  t.equal(coded("POST", "Chunked"), null);
  t.equal(coded("GET", "chunked"), null);
  for (const value of ["gzip, chunked", "identity", "chunked, chunked", "xchunked", ""]) {
    t.equal(coded("POST", value), "bad-request", value);
  }
  t.equal(coded("POST", "chunked", "chunked"), "bad-request");
  t.equal(coded("DELETE", "chunked"), "bad-request");
  t.equal(coded("OPTIONS", "chunked"), "bad-request");
});

t.test(
  "a credential header that is sent twice is refused, in any case, even with the same value",
  async (t) => {
    for (const name of ["authorization", "x-api-key", "api-key", "x-goog-api-key"]) {
      t.equal(code({ headers: [name, "a"] }), null);
      const refusal = refusalOf({ headers: [name, "a", name.toUpperCase(), "a"] });
      t.equal(refusal?.code, "bad-request", name);
      t.notMatch(refusal?.message, /api-key/i, "Claude Code would hide it");
    }
    t.equal(code({ headers: ["accept", "a", "accept", "b"] }), null, "other headers may be sent twice");
  },
);

t.test("an address typed into a browser shows the front page, and nothing else", async (t) => {
  const typed = ["Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"];
  t.equal(code({ target: "/", headers: typed }), null);
  t.equal(code({ target: "/", headers: [] }), null, "an old browser");
  t.equal(code({ target: "/v1/models", headers: typed }), "browser-request");
  t.equal(code({ target: "/?x", headers: typed }), "browser-request");
  t.equal(code({ target: "/", method: "POST", headers: typed }), "browser-request");
  for (const site of ["cross-site", "same-site", "same-origin", ""])
    t.equal(code({ target: "/", headers: ["Sec-Fetch-Site", site] }), "browser-request", site);
  t.equal(code({ target: "/", headers: [...typed, "Sec-Fetch-Site", "none"] }), "browser-request", "twice");
  t.equal(code({ target: "/", headers: [...typed, "Origin", "null"] }), "browser-request");
});

t.test("too many headers and a too long address are refused", async (t) => {
  const many = (n: number) => Array.from({ length: n }, (_, i) => [`X-${i}`, "1"]).flat();
  t.equal(code({ headers: many(99) }), null);
  t.equal(code({ headers: many(100) }), "headers-too-large");
  t.equal(code({ target: `/v1/${"x".repeat(8188)}` }), null);
  t.equal(code({ target: `/v1/${"x".repeat(8189)}` }), "headers-too-large");
});

t.test("a request that passed keybearer twice before is a loop", async (t) => {
  const hops = (value: string) => code({ headers: ["X-Keybearer-Hops", value] });
  t.equal(hops("0"), null);
  t.equal(hops("1"), null);
  t.equal(hops("2"), "loop");
  t.equal(hops("99"), "loop");
  t.equal(hops("nonsense"), "loop");
});
