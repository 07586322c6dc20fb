import { createHash } from "node:crypto";
import { createServer, type IncomingHttpHeaders, request } from "node:http";
import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { canaryKey, freshToken, startUnderTest, stillHealthy } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { PRICES } from "../doubles/limited-journey.ts";
import { listen } from "../doubles/listen.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";

/**
 * Bodies that cannot be read, or say two things. They are refused where a group, tokens or money depend on what they say,
 * and pass byte for byte elsewhere.
 */

const MB = 1024 * 1024;

/** Tools for which a group, tokens or money depend on the body. */
const JUDGED: Readonly<Record<string, string>> = {
  grouped: "group: coding",
  spending: "limits: { spend: $900/day }",
  metered: "limits: { tokens: 900M/day }",
};
/** Tools for which nothing depends on it. */
const OTHERS: Readonly<Record<string, string>> = {
  plain: "",
  counted: "limits: { requests: 900/day, concurrent: 9 }",
  open: "group: all",
};

interface Arrived {
  readonly headers: IncomingHttpHeaders;
  readonly hash: string;
}

interface Answered {
  readonly status: number;
  readonly refusal: string | undefined;
}

async function start(t: Test) {
  const arrived: Arrived[] = [];
  const server = createServer((req, res) => {
    const hash = createHash("sha256");
    req.on("data", (bytes: Buffer) => hash.update(bytes));
    req.on("error", () => {});
    req.on("end", () => {
      arrived.push({ headers: req.headers, hash: hash.digest("hex") });
      res.end("{}");
    });
  });
  const { origin } = await listen(t, server);
  const key = canaryKey();
  const tokens: Record<string, string> = {};
  const tools = Object.entries({ ...JUDGED, ...OTHERS }).map(([name, settings]) => {
    const { token, hash } = freshToken();
    tokens[name] = token;
    return `  ${name}: { key: ${key}-${name}, token: "${hash}"${settings === "" ? "" : `, ${settings}`} }\n`;
  });
  const groups = 'groups: { coding: { models: ["penny"] }, all: { models: ["*"] } }';
  const under = await startUnderTest(
    t,
    `gateways: { main: { base_url: "${origin}/v1", ${groups} } }\n${PRICES}tools:\n${tools.join("")}`,
  );

  const send = (tool: string, body: Buffer, headers: Readonly<Record<string, string>> = {}) =>
    new Promise<Answered>((resolve) => {
      const isChunked = headers["transfer-encoding"] !== undefined;
      const call = request(`${under.url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${tokens[tool]}`,
          "content-type": "application/json",
          ...(isChunked ? {} : { "content-length": String(body.length) }),
          ...headers,
        },
      });
      call.on("response", (response) => {
        response.resume();
        const refusal = response.headers["x-keybearer-refusal"];
        resolve({ status: response.statusCode ?? 0, refusal: refusal as string | undefined });
      });
      // Behind a refusal the connection may end before the last byte is sent, but not in place of it.
      call.on("error", (error) => resolve({ status: 0, refusal: error.message }));
      call.end(body);
    });

  const secrets = [key, ...Object.values(tokens)];
  return { arrived, send, tokens, under, secrets };
}

const json = (text: string) => Buffer.from(`{"model":"penny","max_tokens":5,${text}`);
const SMALL: readonly (readonly [what: string, body: Buffer, headers?: Readonly<Record<string, string>>])[] =
  [
    ["compressed", gzipSync('{"model":"penny","max_tokens":5}'), { "content-encoding": "gzip" }],
    ["cut off", json('"messages":[')],
    ["with a comma too many", json('"messages":[],}')],
    ["no JSON at all", Buffer.from("model=penny&max_tokens=5")],
    ["no object", Buffer.from('["penny"]')],
    ["with something behind its end", json('"messages":[]}{"model":"other"}')],
  ];

t.test(
  "a body that cannot be read is refused where something depends on it, and passes elsewhere",
  async (t) => {
    const { arrived, send, under, secrets } = await start(t);
    for (const [what, body, headers] of SMALL) {
      for (const framing of [{}, { "transfer-encoding": "chunked" }]) {
        for (const tool of Object.keys(JUDGED)) {
          const answer = await send(tool, body, { ...headers, ...framing });
          t.strictSame(answer, { status: 400, refusal: "bad-request" }, `${what}, from ${tool}`);
        }
        t.equal(arrived.length, 0, `${what}: nothing reached the gateway`);
        for (const tool of Object.keys(OTHERS)) {
          const answer = await send(tool, body, { ...headers, ...framing });
          t.strictSame(answer, { status: 200, refusal: undefined }, `${what}, from ${tool}`);
          const last = arrived.pop();
          t.equal(last?.hash, createHash("sha256").update(body).digest("hex"), `${what}: byte for byte`);
          t.equal(last?.headers["content-encoding"], headers?.["content-encoding"]);
        }
      }
    }
    await stillHealthy(t, under, secrets);
  },
);

t.test("a body that names two models is refused where the model decides, and passes elsewhere", async (t) => {
  const { arrived, send, under, secrets } = await start(t);
  for (const second of [
    '"model":"other"',
    '"model":"penny"',
    '"mod\\u0065l":"other"',
    '"Model":"other"',
    '"model":null',
  ]) {
    const body = json(`"messages":[],${second}}`);
    for (const tool of ["grouped", "spending"]) {
      const answer = await send(tool, body);
      t.strictSame(answer, { status: 400, refusal: "bad-request" }, `${second}, from ${tool}`);
    }
    t.equal(arrived.length, 0, `${second}: nothing reached the gateway`);
    for (const tool of Object.keys(OTHERS)) {
      t.equal((await send(tool, body)).status, 200, `${second}, from ${tool}`);
      t.equal(arrived.pop()?.hash, createHash("sha256").update(body).digest("hex"), "byte for byte");
    }
  }
  const inside = json('"messages":[{"model":"other"}],"metadata":{"model":"other"}}');
  for (const tool of Object.keys(JUDGED))
    t.equal((await send(tool, inside)).status, 200, "further in is no model");
  await stillHealthy(t, under, secrets);
});

/** A body of this size, with its model as the last thing in it. */
function large(size: number, model = "penny"): Buffer {
  const begin = '{"max_tokens":5,"messages":[{"content":"';
  const end = `"}],"model":"${model}"}`;
  const body = Buffer.alloc(size, "keybearer ");
  body.write(begin);
  body.write(end, size - end.length);
  return body;
}

longTest(t, "a body up to 32 MB is read to its end for its model", async (t) => {
  const { arrived, send, under, secrets } = await start(t);
  for (const framing of [{}, { "transfer-encoding": "chunked" }]) {
    const refused = await send("grouped", large(3 * MB, "other"), framing);
    t.strictSame(refused, { status: 400, refusal: "model-not-in-group" });
    t.equal(arrived.length, 0);
    for (const tool of Object.keys(JUDGED)) {
      const isLargest = tool === "grouped" && "transfer-encoding" in framing;
      const body = large(isLargest ? 31 * MB : 2 * MB);
      t.strictSame(await send(tool, body, framing), { status: 200, refusal: undefined }, tool);
      t.equal(arrived.pop()?.hash, createHash("sha256").update(body).digest("hex"), "byte for byte");
    }
  }
  await stillHealthy(t, under, secrets);
});

t.test(
  "a body over 32 MB is refused where something depends on it, and passes unread elsewhere",
  async (t) => {
    const { arrived, send, tokens, under, secrets } = await start(t);
    const body = large(33 * MB);
    const hash = createHash("sha256").update(body).digest("hex");
    const port = under.daemon.port;
    for (const tool of Object.keys(JUDGED)) {
      const client = await openRaw(t, port);
      client.send(
        head("POST /v1/chat/completions", {
          Host: `127.0.0.1:${port}`,
          Authorization: `Bearer ${tokens[tool]}`,
          "Content-Type": "application/json",
          "Content-Length": String(body.length),
        }),
      );
      await client.until("\r\n\r\n");
      const { status, headers } = parsed(client.text());
      t.strictSame(
        [status, headers["x-keybearer-refusal"]],
        [413, "body-too-large"],
        `${tool}: before a byte came`,
      );
      client.socket.destroy();
    }
    const chunked = await send("metered", body, { "transfer-encoding": "chunked" });
    t.strictSame(chunked, { status: 413, refusal: "body-too-large" });
    t.equal(arrived.length, 0, "nothing reached the gateway");
    for (const framing of [{}, { "transfer-encoding": "chunked" }]) {
      t.strictSame(await send("plain", body, framing), { status: 200, refusal: undefined });
      t.equal(arrived.pop()?.hash, hash, "byte for byte");
    }
    await stillHealthy(t, under, secrets);
  },
);
