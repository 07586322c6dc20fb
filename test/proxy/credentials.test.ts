import t from "tap";
import { isCredentialName, readCredentials } from "../../src/proxy/credentials.ts";

t.test("credentials are read from their four headers and the address", async (t) => {
  t.strictSame(readCredentials({}, null), []);
  t.strictSame(
    readCredentials(
      { authorization: "Bearer a", "x-api-key": "b", "api-key": "c", "x-goog-api-key": "d", other: "e" },
      "f",
    ).map(({ slot, value }) => `${slot}=${value}`),
    ["the address=f", "authorization=a", "x-api-key=b", "api-key=c", "x-goog-api-key=d"],
  );
});

t.test("Bearer is removed in any case, with any space or none", async (t) => {
  for (const [raw, value] of [
    ["Bearer x", "x"],
    ["bearer x", "x"],
    ["BEARER   x ", "x"],
    ["Bearer\tx", "x"],
    ["x", "x"],
    ["Bearerx", "Bearerx"],
    ["Basic x", "Basic x"],
  ] as const) {
    t.strictSame(readCredentials({ authorization: raw }, null), [{ slot: "authorization", value }], raw);
  }
});

t.test("an empty header is not a credential, and spellings with underscores are never read", async (t) => {
  for (const headers of [
    { authorization: "" },
    { authorization: "Bearer" },
    { authorization: "Bearer  " },
    { "x-api-key": "  " },
    { x_api_key: "kb_x", authorization_: "kb_x", api_key: "kb_x" },
    { "x-api-key": ["a", "b"] },
  ]) {
    t.strictSame(readCredentials(headers, null), [], JSON.stringify(headers));
  }
});

t.test("every spelling that a careless server reads as a credential header is known", async (t) => {
  for (const name of [
    "Authorization",
    "x_api_key",
    "X-API_KEY",
    "authorization_",
    "_api_key",
    "x-goog_api-key",
  ]) {
    t.ok(isCredentialName(name), name);
  }
  for (const name of [
    "x-api-keys",
    "anthropic-version",
    "x-request-id",
    "key",
    "my-authorization",
    "x_other",
  ]) {
    t.notOk(isCredentialName(name), name);
  }
});
