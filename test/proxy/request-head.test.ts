import type { IncomingMessage } from "node:http";
import t from "tap";
import { hashToken, makeToken } from "../../src/core/token.ts";
import { HeadCache } from "../../src/proxy/request-head.ts";
import { snapshotOf } from "../doubles/parsed-config.ts";

const TOKEN = makeToken();
const OTHER_TOKEN = makeToken();
const CONFIG = `gateway: http://127.0.0.1:9/v1
tools:
  codex: { key: sk-agents-0123456789, token: "sha256:${hashToken(TOKEN)}" }
  goose: { key: sk-others-0123456789, token: "sha256:${hashToken(OTHER_TOKEN)}" }
`;
const HOSTS = ["localhost:4141"];
const NEVER_REVOKED = { revokedAt: () => null };

/** A request on a connection, with these headers beside those that every request has. */
function requestOn(socket: object, headers: Record<string, string>, url = "/v1/chat/completions") {
  const all = { host: "localhost:4141", ...headers };
  const rawHeaders = Object.entries(all).flat();
  return { method: "POST", url, headers: all, rawHeaders, socket } as unknown as IncomingMessage;
}

const codex = { authorization: `Bearer ${TOKEN}`, "user-agent": "codex/1.0", "content-length": "10" };

t.test("a head that a connection repeats is known, whatever the length of its body", async (t) => {
  const heads = new HeadCache(HOSTS);
  const snapshot = snapshotOf(CONFIG);
  const socket = {};
  const first = heads.find(requestOn(socket, codex), snapshot);
  t.equal(heads.find(requestOn(socket, { ...codex, "content-length": "999" }), snapshot), first);
  t.not(heads.find(requestOn({}, codex), snapshot), first, "each connection has its own");
});

t.test("anything else that differs is determined again", async (t) => {
  const snapshot = snapshotOf(CONFIG);
  const toolOf = (head: ReturnType<HeadCache["find"]>) => {
    const caller = head.callerByToken(NEVER_REVOKED);
    return caller.ok ? caller.tool.name : caller.refusal.code;
  };
  const heads = new HeadCache(HOSTS);
  const socket = {};
  const next = (headers: Record<string, string>, url?: string) =>
    heads.find(requestOn(socket, headers, url), snapshot);
  t.equal(toolOf(next(codex)), "codex");
  t.equal(toolOf(next({ ...codex, authorization: `Bearer ${OTHER_TOKEN}` })), "goose");
  t.equal(toolOf(next(codex)), "codex");
  t.equal(toolOf(next({ "user-agent": "codex/1.0" })), "token-missing");
  t.equal(next(codex).refusal, null);
  t.match(next({ ...codex, origin: "https://evil.example" }).refusal, { code: "browser-request" });
  t.match(next({ ...codex, host: "evil.example" }).refusal, { code: "host-not-allowed" });
  t.equal(next(codex).userAgent, "codex/1.0");
  t.equal(next({ ...codex, "user-agent": "codex/2.0" }).userAgent, "codex/2.0");
  t.equal(next(codex).endpoint, "/v1/chat/completions");
  t.equal(next(codex, "/v1/models").endpoint, "/v1/models");
});

t.test("a changed configuration is asked again", async (t) => {
  const heads = new HeadCache(HOSTS);
  const socket = {};
  const caller = (config: string) =>
    heads.find(requestOn(socket, codex), snapshotOf(config)).callerByToken(NEVER_REVOKED);
  t.match(caller(CONFIG), { ok: true, tool: { name: "codex" } });
  t.match(caller(CONFIG.replace("codex", "renamed")), { ok: true, tool: { name: "renamed" } });
  t.match(caller(CONFIG.replace(hashToken(TOKEN), hashToken(makeToken()))), { ok: false });
});

t.test("an unknown token is looked up again, because it may be revoked meanwhile", async (t) => {
  const head = new HeadCache(HOSTS).find(
    requestOn({}, { authorization: `Bearer ${makeToken()}` }),
    snapshotOf(CONFIG),
  );
  t.match(head.callerByToken(NEVER_REVOKED), { refusal: { message: /^no tool has the token/ } });
  t.match(head.callerByToken({ revokedAt: () => 1000 }), { refusal: { message: /was revoked/ } });
});
