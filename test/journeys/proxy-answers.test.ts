import { gzipSync } from "node:zlib";
import t from "tap";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { head, openRaw, parsed, type RawClient } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

async function ask(client: RawClient, host: string, token: string, line = "GET /v1/models"): Promise<void> {
  client.send(head(line, { Host: host, Authorization: `Bearer ${token}` }));
  await until("the whole answer", () => {
    const { headers, body } = parsed(client.text());
    return client.text().includes("\r\n\r\n") && body.length >= Number(headers["content-length"] ?? 0);
  });
}

t.test("a 401 of the gateway passes byte for byte, and a header names its cause", async (t) => {
  const body = '{"code":"INVALID_API_KEY","message":"Invalid API key"}';
  for (const bytes of [Buffer.from(body), gzipSync(body)]) {
    const gateway = await startRawGateway(t, (call) =>
      call.answer(
        "401 Unauthorized",
        {
          "Content-Type": "application/json",
          "WWW-Authenticate": "Bearer",
          "X-Should-Retry": "true",
          ...(bytes.length === body.length ? {} : { "Content-Encoding": "gzip" }),
        },
        bytes,
      ),
    );
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    await ask(client, one.host, one.token);
    const got = parsed(client.text());
    t.equal(got.status, 401);
    t.ok(client.bytes().subarray(-bytes.length).equals(bytes), "byte for byte");
    t.equal(got.headers["x-keybearer-cause"], "incomplete-key");
    t.equal(got.headers["x-should-retry"], "false");
    t.equal(got.names.filter((name) => name === "x-should-retry").length, 1);
    t.equal(got.headers["www-authenticate"], "Bearer");
    const named = async () => JSON.stringify((await one.daemon.status()).tools).includes("incomplete-key");
    // The client has its answer a moment before the request is settled.
    await until("it is in the status too", named);
    t.notOk(JSON.stringify(await one.daemon.status()).includes(one.key));
    await stillHealthy(t, one, [one.key, one.token]);
  }
});

t.test("a web page instead of a response is reported as a wrong base url", async (t) => {
  const page = "<!doctype html><title>console</title>";
  const gateway = await startRawGateway(t, (call) =>
    call.answer("200 OK", { "Content-Type": "text/html; charset=utf-8" }, page),
  );
  const one = await startWithOneTool(t, gateway.origin);
  const client = await openRaw(t, one.port);
  await ask(client, one.host, one.token);
  const got = parsed(client.text());
  t.match(got, { status: 200, body: page });
  t.equal(got.headers["x-keybearer-cause"], "wrong-base-url");
  t.equal(got.headers["x-should-retry"], "false");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("after a refusal of the gateway the status shows its cause until the tool is served", async (t) => {
  let answer = (call: GatewayCall) =>
    call.answer(
      "403 Forbidden",
      {},
      '{"code":"INSUFFICIENT_BALANCE","message":"Insufficient account balance"}',
    );
  const gateway = await startRawGateway(t, (call) => answer(call));
  const one = await startWithOneTool(t, gateway.origin);
  const headers = { authorization: `Bearer ${one.token}` };
  const refused = await fetch(`${one.url}/v1/models`, { headers });
  t.equal(refused.headers.get("x-keybearer-cause"), "balance-or-quota");
  t.equal(refused.headers.get("x-should-retry"), "false");
  await refused.text();
  t.match(JSON.stringify(await one.daemon.status()), "balance-or-quota");
  answer = (call) => call.ok();
  // A list of models would not do: gateways list them to keys without money, too.
  const served = await fetch(`${one.url}/v1/chat/completions`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: '{"model":"m","messages":[]}',
  });
  await served.text();
  await until(
    "it is forgotten",
    async () => !JSON.stringify(await one.daemon.status()).includes("balance-or-quota"),
  );
  await stillHealthy(t, one, [one.key, one.token]);
});
