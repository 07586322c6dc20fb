import t from "tap";
import { guard, type RequestHead } from "../../src/proxy/guard.ts";
import { hostsOf } from "../../src/proxy/server.ts";

const P = 5397;
const HOSTS = hostsOf(P);
const ORIGINS = ["app://desk.example"];

function head(over: Partial<RequestHead> & { headers?: string[] } = {}): RequestHead {
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
const hosted = (...hosts: string[]) => code({ rawHeaders: hosts.flatMap((host) => ["Host", host]) });

t.test("exactly the three names of this port are allowed as host", async (t) => {
  for (const host of [`127.0.0.1:${P}`, `localhost:${P}`, `[::1]:${P}`, `LOCALHOST:${P}`]) {
    t.equal(hosted(host), null, host);
  }
  for (const host of [
    "localhost",
    `localhost:${P + 1}`,
    `localhost.:${P}`,
    `LOCALHOST.evil:${P}`,
    "localhost.com",
    `127.0.0.1.nip.io:${P}`,
    `0.0.0.0:${P}`,
    `[::]:${P}`,
    `127.1:${P}`,
    `2130706433:${P}`,
    `0x7f.1:${P}`,
    `[::ffff:127.0.0.1]:${P}`,
    `user@localhost:${P}`,
    `my-laptop.local:${P}`,
    `localhost:${P} `,
    `localhost:0${P}`,
    `localhost:${P}, localhost:${P}`,
  ]) {
    t.equal(hosted(host), "host-not-allowed", host);
  }
});

t.test("there is exactly one host, and it is not empty", async (t) => {
  t.equal(hosted(), "bad-request");
  t.equal(hosted(""), "bad-request");
  t.equal(hosted(`localhost:${P}`, "evil"), "bad-request");
  t.equal(hosted("evil", `localhost:${P}`), "bad-request");
  t.equal(hosted(`localhost:${P}`, `localhost:${P}`), "bad-request");
  t.equal(code({ rawHeaders: ["host", `localhost:${P}`, "HOST", "evil"] }), "bad-request", "in any case");
});

t.test("the host is judged first, so that a rebound page learns nothing else", async (t) => {
  t.equal(
    code({
      target: "//evil",
      rawHeaders: ["Host", "evil", "Origin", "http://evil", "x-keybearer-hops", "9"],
    }),
    "host-not-allowed",
  );
});

t.test("targets that are no plain path are refused", async (t) => {
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
  "a credential header that is sent twice is refused, in whatever case, even with the same value",
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

t.test("an address that was typed into a browser may show the front page, and nothing else", async (t) => {
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

t.test("web pages are told apart from programs", async (t) => {
  for (const headers of [
    ["Origin", "https://evil.test"],
    ["Origin", "null"],
    ["Origin", ""],
    ["Origin", "app://desk.example", "Origin", "app://desk.example"],
    ["Origin", "app://desk.example/"],
    ["Origin", "APP://desk.example"],
    ["Origin", "app://desk.example.evil"],
    ["Sec-Fetch-Site", "cross-site"],
    ["Sec-Fetch-Site", "same-origin"],
    ["Sec-Fetch-Site", "none"],
    ["Sec-Fetch-Mode", "navigate"],
    ["Sec-Fetch-Mode", "no-cors"],
    ["Sec-Fetch-Mode", "cors", "Sec-Fetch-Mode", "cors"],
    ["Sec-Fetch-Dest", "image"],
    ["Sec-Fetch-User", "?1"],
    ["Access-Control-Request-Method", "POST"],
  ]) {
    t.equal(code({ headers }), "browser-request", headers.join(" "));
  }
  t.equal(code({ headers: ["Sec-Fetch-Mode", "cors"] }), null, "Node's own fetch sends this");
  t.equal(code({ headers: ["Origin", "app://desk.example", "Sec-Fetch-Site", "cross-site"] }), null);
});

t.test("too many headers and too long an address are refused", async (t) => {
  const many = (n: number) => Array.from({ length: n }, (_, i) => [`X-${i}`, "1"]).flat();
  t.equal(code({ headers: many(99) }), null);
  t.equal(code({ headers: many(100) }), "headers-too-large");
  t.equal(code({ target: `/v1/${"x".repeat(8188)}` }), null);
  t.equal(code({ target: `/v1/${"x".repeat(8189)}` }), "headers-too-large");
});

t.test("a request that came through keybearer twice already is a loop", async (t) => {
  const hops = (value: string) => code({ headers: ["X-Keybearer-Hops", value] });
  t.equal(hops("0"), null);
  t.equal(hops("1"), null);
  t.equal(hops("2"), "loop");
  t.equal(hops("99"), "loop");
  t.equal(hops("nonsense"), "loop");
});
