import t from "tap";
import { parseConfig } from "../../src/config/parse.ts";

const TOP = "gateway: https://gateway.example.com/v1\ntools: { codex: {} }\n";

function parse(shared: string) {
  return parseConfig(`${TOP}shared: ${shared}\n`, "/home/me");
}

const ADDRESSES: Readonly<Record<string, string>> = {
  "rediss://valkey.example.net": "rediss://valkey.example.net:6379",
  "REDISS://Valkey.Example.NET:443/": "rediss://valkey.example.net:443",
  "rediss://valkey.example.net:6380/0": "rediss://valkey.example.net:6380",
  "rediss://my_store/15": "rediss://my_store:6379/15",
  "rediss://10.1:80": "rediss://10.0.0.1:80",
  "rediss://[2001:DB8::0:1]/1": "rediss://[2001:db8::1]:6379/1",
  "redis://localhost": "redis://localhost:6379",
  "redis://LOCALHOST:7000": "redis://localhost:7000",
  "redis://127.0.0.1:7000/9": "redis://127.0.0.1:7000/9",
  "redis://[::1]": "redis://[::1]:6379",
};

t.test("an address has one form", async (t) => {
  for (const [text, url] of Object.entries(ADDRESSES)) {
    const { config, problems } = parse(`{ store: "${text}" }`);
    t.same(problems, [], text);
    t.equal(config?.shared?.store.url, url);
    t.equal(parse(`{ store: { url: "${text}" } }`).config?.shared?.store.url, url);
  }
});

/** The value of a setting, where the problem is, and what the message or the hint says. */
const MISTAKES: readonly (readonly [shared: string, path: string, words: RegExp])[] = [
  ['{ store: "redis://valkey.example.net:7000/3" }', "store", /write rediss:\/\/valkey\.example\.net:7000/],
  ['{ store: "redis://192.168.1.5" }', "store", /unencrypted → write rediss:/],
  ['{ store: "redis://127.0.0.1.example.net" }', "store", /unencrypted → write rediss:/],
  ['{ store: "redis://localhost.example.net" }', "store", /unencrypted → write rediss:/],
  ['{ store: "redis://[::ffff:127.0.0.1]" }', "store", /unencrypted → write rediss:/],
  ['{ store: "redis://0.0.0.0" }', "store", /unencrypted → write rediss:/],
  ['{ store: "https://valkey.example.net" }', "store", /such as rediss:/],
  ['{ store: "unix:///run/redis.sock" }', "store", /such as rediss:/],
  ['{ store: "valkey.example.net:6379" }', "store", /such as rediss:/],
  ['{ store: "rediss:valkey.example.net" }', "store", /such as rediss:/],
  ['{ store: "rediss://" }', "store", /such as rediss:/],
  ['{ store: "rediss://:6379" }', "store", /such as rediss:/],
  ['{ store: "rediss:///1" }', "store", /such as rediss:/],
  ['{ store: "rediss://a.example.net:0" }', "store", /such as rediss:/],
  ['{ store: "rediss://a.example.net:65536" }', "store", /such as rediss:/],
  ['{ store: "rediss://a.example.net:" }', "store", /such as rediss:/],
  ['{ store: "rediss://a.example.net:1,b.example.net:1" }', "store", /such as rediss:/],
  ['{ store: "rediss://a.example.net " }', "store", /such as rediss:/],
  ['{ store: "rediss://a.example.net\\0" }', "store", /such as rediss:/],
  ['{ store: "rediss://a%2eexample.net" }', "store", /such as rediss:/],
  ['{ store: "rediss://v\u0430lkey.example.net" }', "store", /such as rediss:/],
  ['{ store: "rediss://1.2.3.999" }', "store", /such as rediss:/],
  ['{ store: "rediss://a.example.net." }', "store", /remove the dot/],
  ['{ store: "rediss://@a.example.net" }', "store", /remove it: store: \{ url: …, username: …, password:/],
  ['{ store: "rediss://a.example.net\\\\@b.example.net" }', "store", /user name or password/],
  ['{ store: "rediss://a.example.net?tls=off" }', "store", /cut it off at the \? or #/],
  ['{ store: "rediss://a.example.net/0#x" }', "store", /cut it off at the \? or #/],
  ['{ store: "rediss://a.example.net/16" }', "store", /0 to 15 → rediss:\/\/a\.example\.net:6379\/1/],
  ['{ store: "rediss://a.example.net/01" }', "store", /0 to 15/],
  ['{ store: "rediss://a.example.net/1/" }', "store", /0 to 15/],
  ['{ store: "rediss://a.example.net/keybearer" }', "store", /0 to 15/],
  ["{ store: [rediss://a.example.net] }", "store", /a single value/],
  ["{ store: }", "store", /nothing is written here/],
  ["{ store: { url: rediss://a.example.net, ca_file: a.pem } }", "store.ca_file", /not absolute/],
  ['{ store: { url: rediss://a.example.net, prefix: "a:*" } }', "store.prefix", /cannot be a prefix/],
  ["{ store: { url: rediss://a.example.net, prefix: Work } }", "store.prefix", /lower-case letters/],
  [`{ store: { url: rediss://a.example.net, prefix: ${"a".repeat(33)} } }`, "store.prefix", /at most 32/],
  ["{ store: { url: rediss://a.example.net, password: } }", "store.password", /nothing is written here/],
  ["{ store: { url: rediss://a.example.net, password: $PASSWORD } }", "store.password", /write env:PASSWORD/],
  ["{ store: { url: rediss://a.example.net, password: file:secret } }", "store.password", /not absolute/],
  [
    "{ store: { url: rediss://a.example.net, colour: red } }",
    "store.colour",
    /known here: ca_file, password/,
  ],
  ['{ store: rediss://a.example.net, machine: "my laptop" }', "machine", /cannot be the name of a machine/],
  [`{ store: rediss://a.example.net, machine: ${"a".repeat(65)} }`, "machine", /at most 64/],
  ["{ store: rediss://a.example.net, machine: -a }", "machine", /starting with a letter or digit/],
  ["{ store: rediss://a.example.net, timezone: Europe/Berln }", "timezone", /did you mean Europe\/Berlin\?/],
  ['{ store: rediss://a.example.net, timezone: "+02:00" }', "timezone", /such as Europe\/Berlin or UTC/],
  ['{ store: rediss://a.example.net, timezone: "UTC\\0" }', "timezone", /is not a time zone/],
  [`{ store: rediss://a.example.net, timezone: ${"a/".repeat(50_000)} }`, "timezone", /is not a time zone/],
  ["{ store: rediss://a.example.net, when_unreachable: open }", "when_unreachable", /one of grant, refuse/],
  ["{ store: rediss://a.example.net, secret: short }", "secret", /incomplete key: .* 8 characters/],
  ["{ store: rediss://a.example.net, secret: $SECRET }", "secret", /write env:SECRET/],
  [
    "{ store: rediss://a.example.net, tools: {} }",
    "tools",
    /known here: machine, secret, store, timezone, when/,
  ],
];

t.test("one mistake is one problem", async (t) => {
  for (const [shared, path, words] of MISTAKES) {
    const { config, problems } = parse(shared);
    const about = shared.slice(0, 100);
    t.equal(config, null, about);
    t.equal(problems.length, 1, about);
    t.equal(problems[0]?.path, `shared.${path}`, about);
    t.match(`${problems[0]?.message} → ${problems[0]?.hint}`, words, about);
  }
  t.match(parse("false").problems, [{ path: "shared", message: "shared must be a map of settings" }]);
  t.match(parse("").problems, [{ path: "shared", message: "nothing is written after `shared:`" }]);
});

t.test("a zone is taken in the spelling of Intl", async (t) => {
  const zone = (text: string) =>
    parse(`{ store: rediss://a.example.net, timezone: ${text} }`).config?.shared?.timezone;
  t.equal(zone("europe/berlin"), "Europe/Berlin");
  t.equal(zone("UTC"), "UTC");
  // Intl has another name for it, by its version.
  t.equal(zone("Asia/Kolkata"), "Asia/Kolkata");
});

t.test("a password is accepted from every source, and shown in no problem", async (t) => {
  const store = (password: string) =>
    parse(`{ store: { url: rediss://a.example.net, password: ${password} } }`).config?.shared?.store.password;
  t.match(store("keychain:keybearer/shared"), { kind: "keychain", account: "shared" });
  t.match(store("env:STORE_PASSWORD"), { kind: "env", name: "STORE_PASSWORD" });
  t.match(store("file:~/store"), { kind: "file", path: "/home/me/store" });
  t.match(store("{ command: [/usr/bin/pass, show, store] }"), { kind: "command" });
  t.match(store("short"), { kind: "literal" }, "a password may be short");
  for (const name of ["password", "pasword", "passwd", "pass"]) {
    const { problems } = parse(`{ colour: red, store: { url: x, ${name}: correct-horse-battery } }`);
    t.not(problems.length, 0);
    t.notMatch(JSON.stringify(problems), /correct-horse/, name);
  }
  for (const address of ["rediss://me:correct-horse@a.example.net", "http://me:correct-horse@a"])
    t.notMatch(JSON.stringify(parse(`{ store: "${address}" }`).problems), /correct-horse/, address);
});
