import t from "tap";
import { hashToken, makeToken } from "../../src/core/token.ts";
import { type Credential, identifyByToken } from "../../src/proxy/credentials.ts";
import { snapshotOf } from "../doubles/parsed-config.ts";

const [A, A2, B, UNKNOWN] = [makeToken(), makeToken(), makeToken(), makeToken()] as const;
const snapshot = snapshotOf(`gateway: https://gateway.example.com/v1
tools:
  a: { token: ["sha256:${hashToken(A)}", "sha256:${hashToken(A2)}"] }
  b: { token: "sha256:${hashToken(B)}", token_in_url: true }
  c: {}
`);
const bearer = (value: string): Credential => ({ slot: "authorization", value });
const inUrl = (value: string): Credential => ({ slot: "the address", value });

t.test("a token names its tool, each of several does, in one slot or in all", async (t) => {
  for (const [token, name] of [
    [A, "a"],
    [A2, "a"],
    [B, "b"],
  ] as const) {
    t.match(identifyByToken(snapshot, [bearer(token)]), { ok: true, tool: { name } });
    t.match(identifyByToken(snapshot, [bearer(token), { slot: "x-api-key", value: token }]), {
      ok: true,
      tool: { name },
    });
  }
  t.match(identifyByToken(snapshot, [inUrl(B)]), { ok: true, tool: { name: "b" } });
});

t.test("a token with a wrong checksum is incomplete, also where its hash stands in the file", async (t) => {
  const wrong = `${A.slice(0, -1)}${A.endsWith("x") ? "y" : "x"}`;
  const other = snapshotOf(`gateway: https://gateway.example.com/v1
tools:
  a: { token: ["sha256:${hashToken(A)}", "sha256:${hashToken(wrong)}"] }
`);
  for (let time = 0; time < 2; time += 1) {
    t.match(identifyByToken(other, [bearer(wrong)]), { ok: false, refusal: { code: "token-incomplete" } });
    t.match(identifyByToken(other, [bearer(A)]), { ok: true, tool: { name: "a" } });
  }
});

const refused: [string, Credential[], string, string][] = [
  ["nothing", [], "token-missing", "keybearer tools token"],
  ["an unknown token", [bearer(UNKNOWN)], "token-unknown", "no tool has the token in authorization"],
  ["half a token", [bearer(A.slice(0, -1))], "token-incomplete", "authorization is incomplete"],
  [
    "a gateway's key",
    [{ slot: "x-api-key", value: "sk-abcdefghijklmnop" }],
    "foreign-key",
    "a real key in x-api-key",
  ],
  [
    "a google key",
    [{ slot: "x-goog-api-key", value: "AIzaSyA0123456789abcdefghij" }],
    "foreign-key",
    "x-goog-api-key",
  ],
  ["a word", [bearer("dummy")], "token-unknown", "authorization"],
  [
    "the token beside a key",
    [bearer(A), { slot: "x-api-key", value: "sk-abcdefghijklmnop" }],
    "foreign-key",
    "the one in x-api-key",
  ],
  [
    "a key beside the token",
    [bearer("sk-abcdefghijklmnop"), { slot: "x-api-key", value: A }],
    "foreign-key",
    "the one in authorization",
  ],
  [
    "two tools' tokens",
    [bearer(A), { slot: "x-api-key", value: B }],
    "foreign-key",
    "two different credentials",
  ],
  [
    "two of one tool's tokens",
    [bearer(A), { slot: "x-api-key", value: A2 }],
    "foreign-key",
    "two different credentials",
  ],
  ["a token in the address where that is off", [inUrl(A)], "token-unknown", "tools.a.token_in_url: true"],
];
for (const [what, credentials, code, text] of refused) {
  t.test(`${what} is ${code}, and the message does not contain the value`, async (t) => {
    const result = identifyByToken(snapshot, credentials);
    if (result.ok) return void t.fail("it was let in");
    t.equal(result.refusal.code, code);
    t.match(result.refusal.message, text);
    for (const { value } of credentials) {
      if (value.length > 8) t.notOk(result.refusal.message.includes(value));
    }
  });
}
