import t from "tap";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";

t.test("each protocol goes to its own address, with the key in its own header", async (t) => {
  const openai = await startRawGateway(t, (call) => call.ok('"base"'));
  const messages = await startRawGateway(t, (call) => call.ok('"messages"'));
  const one = await startWithOneTool(t, openai.origin, {
    baseUrl: `${openai.origin}/some/prefix/v1`,
    gateway: [`messages_url: ${messages.origin}/other`],
  });
  const ask = async (method: string, path: string, headers: Record<string, string>) => {
    const answer = await fetch(one.url + path, { method, headers });
    return answer.text();
  };
  const bearer = { authorization: `Bearer ${one.token}` };

  t.equal(await ask("GET", "/v1/models", bearer), '"base"');
  t.equal(openai.calls.at(-1)?.target, "/some/prefix/v1/models");
  t.strictSame(openai.calls.at(-1)?.header("authorization"), [`Bearer ${one.key}`]);

  t.equal(await ask("POST", "/v1/messages?beta=true", { "x-api-key": one.token }), '"messages"');
  t.equal(messages.calls.at(-1)?.target, "/other/v1/messages?beta=true");
  t.strictSame(messages.calls.at(-1)?.header("x-api-key"), [one.key]);
  t.strictSame(messages.calls.at(-1)?.header("authorization"), []);

  t.equal(await ask("POST", "/v1/messages/count_tokens", bearer), '"messages"');
  t.equal(messages.calls.at(-1)?.target, "/other/v1/messages/count_tokens");
  t.strictSame(messages.calls.at(-1)?.header("authorization"), [`Bearer ${one.key}`]);

  t.equal(await ask("POST", "/v1/messages", { ...bearer, "x-api-key": one.token }), '"messages"');
  t.strictSame(messages.calls.at(-1)?.header("authorization"), [`Bearer ${one.key}`], "both: Bearer");
  t.strictSame(messages.calls.at(-1)?.header("x-api-key"), []);

  const gemini = "/v1beta/models/gemini-x:streamGenerateContent?alt=sse";
  t.equal(await ask("POST", gemini, bearer), '"base"');
  t.equal(openai.calls.at(-1)?.target, `/some/prefix${gemini}`);
  t.strictSame(openai.calls.at(-1)?.header("x-goog-api-key"), [one.key]);
  t.strictSame(openai.calls.at(-1)?.header("authorization"), []);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("any method and any endpoint passes", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]) {
    const client = await openRaw(t, one.port);
    const body = method === "GET" ? "" : '{"x":1}';
    client.send(
      head(`${method} /v1/some/endpoint/nobody/knows`, {
        Host: one.host,
        Authorization: `Bearer ${one.token}`,
        ...(body === "" ? {} : { "Content-Length": String(body.length) }),
      }) + body,
    );
    await client.until("\r\n\r\n{}");
    const call = gateway.calls.at(-1);
    t.equal(call?.method, method);
    t.equal(call?.body().toString(), body, `${method} with its body`);
  }
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("path and query reach the gateway byte for byte", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  for (const path of [
    "/v1/files/a%20b%2Fc",
    "/v1/models?a=1&a=2&b=%E4%BD%A0&c=+&d=/../x&e=a?b",
    "/v1/models?x=//evil.example.com",
    "/v1//models",
    "/v1/models/",
    "/v1/x;y=z@evil:80,a!$'()*~|^`{}[]",
    "/v1/a%252e%252e",
    "/v1/models?&&",
  ]) {
    const client = await openRaw(t, one.port);
    client.send(head(`GET ${path}`, { Host: one.host, Authorization: `Bearer ${one.token}` }));
    await client.until("\r\n\r\n");
    t.equal(client.status(), 200, path);
    t.equal(gateway.calls.at(-1)?.target, path);
  }
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("key_header sets the header of the key for every protocol", async (t) => {
  for (const [setting, slot, value] of [
    ["bearer", "authorization", "Bearer "],
    ["x-api-key", "x-api-key", ""],
  ] as const) {
    const gateway = await startRawGateway(t, (call) => call.ok());
    const one = await startWithOneTool(t, gateway.origin, { gateway: [`key_header: ${setting}`] });
    for (const path of ["/v1/chat/completions", "/v1/messages", "/v1beta/models/g:generateContent"]) {
      for (const shown of ["x-api-key", "authorization", "x-goog-api-key"]) {
        const headers = { [shown]: shown === "authorization" ? `Bearer ${one.token}` : one.token };
        await (await fetch(one.url + path, { method: "POST", headers })).text();
        const call = gateway.calls.at(-1);
        t.strictSame(call?.header(slot), [value + one.key], `${setting} on ${path}`);
        t.equal(call?.text().split(one.key).length, 2, "once");
      }
    }
    await stillHealthy(t, one, [one.key, one.token]);
  }
});

t.test("the refusal of a wrong base url names the right one, even without a token", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  for (const [path, right] of [
    ["/v1/v1/messages?beta=true", `set the base url to ${one.url}"`],
    ["/messages", `set it to ${one.url}/v1"`],
    ["/chat/completions", `set it to ${one.url}/v1"`],
    ["/v1/chat/completions/chat/completions", `${one.url}/v1 in openai-style`],
    ["/nowhere", `${one.url}/v1 in openai-style`],
  ] as const) {
    const answer = await fetch(one.url + path, { method: "POST", body: "{}" });
    t.equal(answer.status, 400, path);
    t.equal(answer.headers.get("x-keybearer-refusal"), "wrong-base-url");
    t.ok((await answer.text()).includes(right), `${path} names ${right}`);
  }
  const probe = await fetch(`${one.url}/api/hello`, { method: "HEAD" });
  t.equal(probe.status, 404);
  t.ok(probe.headers.get("x-keybearer-request-id"));
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key]);
});

t.test("an HTTP/1.0 client that names a host is served, and its connection ends", async (t) => {
  const gateway = await startRawGateway(t, (call) =>
    call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
  );
  const one = await startWithOneTool(t, gateway.origin);
  const old = await openRaw(t, one.port);
  old.send(`GET /v1/models HTTP/1.0\r\nHost: ${one.host}\r\nAuthorization: Bearer ${one.token}\r\n\r\n`);
  await old.closed();
  const { status, headers, body } = parsed(old.text());
  t.equal(status, 200);
  t.equal(headers["transfer-encoding"], undefined, "chunks are unknown to it");
  t.equal(body, "hello");

  const nameless = await openRaw(t, one.port);
  nameless.send(`GET /v1/models HTTP/1.0\r\nAuthorization: Bearer ${one.token}\r\n\r\n`);
  await nameless.closed();
  t.equal(nameless.status(), 400);
  t.equal(gateway.calls.length, 1);
  await stillHealthy(t, one, [one.key, one.token]);
});
