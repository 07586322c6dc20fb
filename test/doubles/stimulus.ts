// What tests of threats send as bytes, and what they check of each refusal and of each line in the log.
import type { Test } from "tap";
import type { RefusalCode } from "../../src/core/refusal.ts";
import type { DaemonUnderTest } from "./daemon-under-test.ts";
import { head, openRaw, parsed, type RawClient } from "./raw-client.ts";
import type { RawGateway } from "./raw-gateway.ts";
import { until } from "./until.ts";

/** A daemon, the gateway behind it, and the secrets that must show up nowhere. */
export interface Context {
  readonly under: DaemonUnderTest;
  readonly gateway: RawGateway;
  readonly secrets: readonly string[];
  /** How to send a request. Default: on a connection of its own. */
  readonly say?: (bytes: string | Buffer) => Promise<Heard>;
}

export interface Heard extends ReturnType<typeof parsed> {
  readonly client: RawClient;
}

/** Sends bytes on a connection of their own and waits for one whole answer. */
export async function say(t: Test, port: number, bytes: string | Buffer): Promise<Heard> {
  const client = await openRaw(t, port);
  client.send(bytes);
  await client.until(() => isWhole(client));
  return { client, ...parsed(client.text()) };
}

function isWhole(client: RawClient): boolean {
  if (!client.text().includes("\r\n\r\n")) return false;
  const { headers, body } = parsed(client.text());
  const length = headers["content-length"];
  return length === undefined ? /(?:^|\n)0\r\n\r\n$/.test(body) : body.length >= Number(length);
}

/** A request with a body that has its length. */
export function post(line: string, headers: Readonly<Record<string, string>>, body = "{}"): string {
  return head(line, { ...headers, "Content-Length": String(Buffer.byteLength(body)) }) + body;
}

export interface Refused {
  readonly status: number;
  readonly code: RefusalCode;
  /** How the body is written. Default openai. */
  readonly protocol?: "openai" | "messages" | "gemini";
}

/**
 * The whole of a refusal: status, header, body, one line in the log, and nothing at the gateway. After twenty of a kind the
 * log has no more lines; test/journeys/usage-floods.test.ts checks that they are counted.
 */
export async function refuses(
  t: Test,
  scene: Context,
  what: string,
  bytes: string | Buffer,
  expected: Refused,
): Promise<Heard> {
  const { under, gateway, secrets } = scene;
  const before = gateway.connections();
  const heard = await (scene.say?.(bytes) ?? say(t, under.daemon.port, bytes));
  const { headers, names } = heard;
  const id = headers["x-keybearer-request-id"] ?? "";
  const seen = { status: heard.status, refusal: headers["x-keybearer-refusal"], body: codeIn(heard.body) };
  const { status, code, protocol = "openai" } = expected;
  t.strictSame(seen, { status, refusal: code, body: codeFor(protocol, code, status) }, what);
  t.match(id, /^[0-9A-HJKMNP-TV-Z]{26}$/, `${what}: has an id`);
  t.strictSame(
    names.filter((name) => /^access-control-|^set-cookie$/.test(name)),
    [],
    `${what}: nothing for browsers`,
  );
  const log = under.log();
  const isOneOfMany = log.filter(({ refusal }) => refusal === code).length >= 20;
  const lines = log.filter((line) => line.id === id);
  if (lines.length > 0 || !isOneOfMany)
    t.strictSame(
      lines.map(({ end, refusal, status }) => ({ end, refusal, status })),
      [{ end: "refused", refusal: code, status }],
      `${what}: its log`,
    );
  t.equal(gateway.connections(), before, `${what}: nothing reached the gateway`);
  for (const secret of secrets) t.notOk(heard.client.text().includes(secret), `${what}: no secret in it`);
  return heard;
}

/** What a body says of the refusal: its code, or in the messages protocol, which has no place for one, its type. */
function codeIn(body: string): unknown {
  const { error, type } = JSON.parse(body) as {
    type?: string;
    error: { message: string; code?: unknown; type?: string; details?: { reason: string }[] };
  };
  if (!error.message.startsWith("keybearer: ")) return error.message;
  return error.details?.[0]?.reason ?? (type === "error" ? error.type : error.code);
}

function codeFor(protocol: string, code: RefusalCode, status: number): string {
  if (protocol !== "messages") return code;
  const types: Record<number, string> = { 401: "authentication_error", 403: "permission_error" };
  return types[status] ?? (status >= 500 ? "api_error" : "invalid_request_error");
}

/** The records of one endpoint, once as many as expected have ended. More of them fail, too. */
export async function settledAs(
  t: Test,
  under: DaemonUnderTest,
  endpoint: string,
  expected: readonly Record<string, unknown>[],
): Promise<void> {
  const records = () => under.ended().filter((record) => record.endpoint === endpoint);
  await until(`${endpoint} is settled`, () => records().length >= expected.length);
  t.match(records(), expected, `${endpoint}: how it ended`);
  t.equal(records().length, expected.length, `${endpoint}: one record for each request`);
  t.equal(new Set(records().map(({ id }) => id)).size, expected.length, `${endpoint}: each its own`);
}

/** The bytes of a chunked body, without its framing. Fails where they do not come to their end. */
export function dechunked(body: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; ; ) {
    const end = body.indexOf("\r\n", at);
    const size = Number.parseInt(body.subarray(at, end).toString(), 16);
    if (end === -1 || Number.isNaN(size)) throw new Error(`no chunk at ${at}: ${body.subarray(at, at + 40)}`);
    if (size === 0) return Buffer.concat(parts);
    parts.push(body.subarray(end + 2, end + 2 + size));
    at = end + 2 + size + 2;
  }
}
