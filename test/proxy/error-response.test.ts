import { once } from "node:events";
import { createServer, get, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import t, { type Test } from "tap";
import { Secret } from "../../src/core/secret.ts";
import { readErrorResponse } from "../../src/proxy/error-response.ts";
import { encodings } from "../metering/captured.ts";

const KEY = "sk-live-0123456789abcdefghij";

/** The response of a gateway that refuses with this body. */
async function refusal(t: Test, encoding: string, body: Buffer): Promise<IncomingMessage> {
  const server = createServer((_, res) => res.writeHead(401, { "content-encoding": encoding }).end(body));
  t.teardown(() => server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const request = get({ host: "127.0.0.1", port, agent: false });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return response;
}

t.test("a key that an error echoes is redacted in every encoding that can be read", async (t) => {
  const text = `no such key: ${KEY}, ${"and so on ".repeat(30)}`;
  for (const [encoding, encode] of [...encodings, ["identity", (bytes: Buffer) => bytes] as const]) {
    const response = await refusal(t, encoding, encode(Buffer.from(text)));
    const error = readErrorResponse(
      response,
      await buffer(response),
      true,
      new Secret(KEY),
      (cause) => cause,
    );
    t.equal(error.body.toString(), text.replace(KEY, "[redacted]"), encoding);
    t.equal(error.text, text.replace(KEY, "[redacted]"), encoding);
    t.notOk(error.headers.includes("content-encoding"), "what was changed is sent decoded");
    t.equal(error.isTruncated, false);
  }
});

t.test("an error in an unreadable encoding passes unchanged", async (t) => {
  const body = Buffer.from("some bytes");
  for (const encoding of ["compress", "gzip, compress", "br", "gzip,gzip,gzip,gzip"]) {
    const response = await refusal(t, encoding, body);
    const error = readErrorResponse(
      response,
      await buffer(response),
      true,
      new Secret(KEY),
      (cause) => cause,
    );
    t.strictSame(error.body, body, encoding);
    t.equal(error.text, "", encoding);
    t.ok(error.headers.includes(encoding), "and says so");
  }
});

t.test(
  "the message of an error is short, on one line and without the key, however that is spelled",
  async (t) => {
    const escaped = [...KEY].map((one) => `\\u00${one.charCodeAt(0).toString(16).padStart(2, "0")}`).join("");
    const messageOf = async (text: string) => {
      const response = await refusal(t, "identity", Buffer.from(text));
      return readErrorResponse(response, await buffer(response), true, new Secret(KEY), (cause) => cause)
        .message;
    };
    t.equal(
      await messageOf(`{"error":{"message":"bad key ${KEY}\\n\\u001b[31m"}}`),
      "bad key [redacted] [31m",
    );
    t.equal(await messageOf(`{"code":"X","message":"bad key ${escaped}"}`), "bad key [redacted]");
    t.equal(await messageOf('{"message":"not sk-somebodyelses0123456789"}'), "not [hidden]");
    t.equal(await messageOf('{"error":{"message":""},"code":"KEY_GONE"}'), "KEY_GONE");
    t.equal(await messageOf("no JSON"), "no JSON");
    t.equal((await messageOf(`{"message":"${"long ".repeat(500)}"}`))?.length, 300);
    const split = await messageOf(`{"message":"${"x".repeat(295)}${KEY}"}`);
    t.notOk(split?.includes(KEY.slice(0, 6)), "a key where the text is cut");
    t.equal(await messageOf(""), null);
  },
);
