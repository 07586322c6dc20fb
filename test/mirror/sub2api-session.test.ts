import { once } from "node:events";
import { Agent, createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import t, { type Test } from "tap";
import { systemClock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import { HttpClient } from "../../src/mirror/consoles/http.ts";
import { Sub2api } from "../../src/mirror/consoles/sub2api.ts";
import {
  loginSub2api,
  type SessionOptions,
  Sub2apiSession,
  secondFactor,
} from "../../src/mirror/consoles/sub2api-session.ts";

const PASSWORD = 'correct horse/battery"staple';
const CREDENTIALS = { email: "me@example.com", password: new Secret(PASSWORD) };

type Reply = readonly [status: number, body: unknown, headers?: Record<string, string>];
type Serve = (path: string, body: Record<string, unknown>, request: IncomingMessage) => Reply | null;

/** A console whose every answer the test decides; null cuts the connection. */
async function consoleServer(t: Test, serve: Serve) {
  const calls: string[] = [];
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    let text = "";
    for await (const chunk of request) text += String(chunk);
    const path = (request.url ?? "").replace(/\?.*/, "").replace("/api/v1", "");
    calls.push(path);
    const reply = serve(path, text === "" ? {} : JSON.parse(text), request);
    if (reply === null) return void request.socket.destroy();
    const [status, body, headers = {}] = reply;
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(typeof body === "string" ? body : JSON.stringify(body));
  };
  const server = createServer((request, response) => void answer(request, response)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => {
    agent.destroy();
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { signal } = new AbortController();
  const client = new HttpClient({ url, clock: systemClock, agent: () => agent, signal, onSkew: () => {} });
  return { url, client, calls };
}

const ok = (data: unknown): Reply => [200, { code: 0, message: "success", data }];
const flat = (code: string): Reply => [401, { code, message: `says ${code}` }];
const refused = (status: number, reason: string): Reply => [status, { code: status, message: "no", reason }];

/** Gives at-1/rt-1, then at-2/rt-2 …; takes only the newest of each. */
function tokens(firstRefresh = "rt-0") {
  let n = 0;
  let refresh = firstRefresh;
  let access = "";
  const next = () => {
    n += 1;
    access = `at-${n}`;
    refresh = `rt-${n}`;
    return { access_token: access, refresh_token: refresh, expires_in: 3600, token_type: "Bearer" };
  };
  return {
    next,
    end: () => {
      access = "";
    },
    refresh: (shown: unknown): Reply =>
      shown === refresh ? ok(next()) : refused(401, "REFRESH_TOKEN_INVALID"),
    check: (request: IncomingMessage): Reply =>
      request.headers.authorization === `Bearer ${access}` ? ok({ balance: 1 }) : flat("TOKEN_EXPIRED"),
  };
}

function sessionOf(client: SessionOptions["client"], more: Partial<SessionOptions> = {}) {
  const kept: Secret[] = [];
  const deps: SessionOptions = {
    client,
    now: () => 0,
    credentials: null,
    refreshToken: new Secret("rt-0"),
    onRefreshToken: async (token) => void kept.push(token),
    ...more,
  };
  return { session: new Sub2apiSession(deps), kept };
}

t.test("the new refresh token is kept before the access token is used", async (t) => {
  const order: string[] = [];
  const issued = tokens();
  const { client } = await consoleServer(t, (path, body, request) => {
    order.push(path);
    return path === "/auth/refresh" ? issued.refresh(body.refresh_token) : issued.check(request);
  });
  const { session } = sessionOf(client, {
    onRefreshToken: async (token) => void order.push(`kept ${token.equals(new Secret("rt-1"))}`),
  });
  t.equal((await session.get("/api/v1/auth/me")).status, 200);
  t.same(order, ["/auth/refresh", "kept true", "/auth/me"]);
});

t.test("a token that cannot be kept is not used, not lost, and not asked for again", async (t) => {
  const issued = tokens();
  const { client, calls } = await consoleServer(t, (path, body, request) =>
    path === "/auth/refresh" ? issued.refresh(body.refresh_token) : issued.check(request),
  );
  let full = true;
  const kept: Secret[] = [];
  const { session } = sessionOf(client, {
    onRefreshToken: async (token) => {
      if (full) throw Object.assign(new Error("disk is full of rt-1"), { code: "ENOSPC" });
      kept.push(token);
    },
  });
  await t.rejects(session.get("/api/v1/auth/me"), {
    kind: "failing",
    message: /could not be stored here \(ENOSPC\)$/,
  });
  t.same(calls, ["/auth/refresh"]);
  full = false;
  t.equal((await session.get("/api/v1/auth/me")).status, 200);
  t.same(calls, ["/auth/refresh", "/auth/me"]);
  t.ok(kept[0]?.equals(new Secret("rt-1")));
});

t.test(
  "a session is renewed shortly before its end, and once when the console says that it has ended",
  async (t) => {
    const issued = tokens();
    const { client, calls } = await consoleServer(t, (path, body, request) =>
      path === "/auth/refresh" ? issued.refresh(body.refresh_token) : issued.check(request),
    );
    let now = 0;
    const { session } = sessionOf(client, { now: () => now });
    await session.get("/api/v1/auth/me");
    now = 3500_000;
    await session.get("/api/v1/auth/me");
    t.same(calls, ["/auth/refresh", "/auth/me", "/auth/me"], "not yet");
    now = 3550_000;
    await session.get("/api/v1/auth/me");
    t.same(calls.slice(3), ["/auth/refresh", "/auth/me"], "a minute before");
    issued.end();
    t.equal((await session.get("/api/v1/auth/me")).status, 200);
    t.same(calls.slice(5), ["/auth/me", "/auth/refresh", "/auth/me"], "and on its 401");
  },
);

t.test("concurrent calls renew the session once", async (t) => {
  const issued = tokens();
  const { client, calls } = await consoleServer(t, (path, body, request) =>
    path === "/auth/refresh" ? issued.refresh(body.refresh_token) : issued.check(request),
  );
  const { session } = sessionOf(client);
  const answers = await Promise.all([1, 2, 3, 4].map(() => session.get("/api/v1/auth/me")));
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200, 200],
  );
  t.equal(calls.filter((path) => path === "/auth/refresh").length, 1);
});

t.test("a refused refresh token needs a login, and is not sent again", async (t) => {
  for (const status of [400, 401]) {
    const { client, calls } = await consoleServer(t, () => refused(status, "REFRESH_TOKEN_INVALID"));
    const { session } = sessionOf(client);
    await t.rejects(session.get("/api/v1/auth/me"), { name: "Error", kind: "login-needed" });
    await t.rejects(session.get("/api/v1/auth/me"), { name: "Error", kind: "login-needed" });
    t.same(calls, ["/auth/refresh"]);
  }
});

t.test("a renewal that fails leaves the refresh token unchanged", async (t) => {
  const issued = tokens();
  const html = "<html>502</html>";
  const failures: (Reply | null)[] = [
    null,
    [502, html],
    [429, ""],
    [200, html],
    [401, html],
    [302, "", { location: "/" }],
  ];
  const { client } = await consoleServer(t, (path, body, request) => {
    const failure = failures.shift();
    if (failure !== undefined) return failure;
    return path === "/auth/refresh" ? issued.refresh(body.refresh_token) : issued.check(request);
  });
  const { session } = sessionOf(client);
  for (const kind of [
    "unreachable",
    "failing",
    "rate-limited",
    "not-a-console",
    "not-a-console",
    "not-a-console",
  ]) {
    await t.rejects(session.get("/api/v1/auth/me"), { name: "Error", kind });
  }
  t.equal((await session.get("/api/v1/auth/me")).status, 200);
});

t.test("a session that is bound elsewhere, inactive or revoked is reported with the cause", async (t) => {
  for (const [code, kind, words] of [
    ["SESSION_BINDING_MISMATCH", "login-needed", /network address/],
    ["USER_INACTIVE", "login-refused", /not active/],
    ["TOKEN_REVOKED", "login-needed", /TOKEN_REVOKED/],
  ] as const) {
    const issued = tokens();
    const { client, calls } = await consoleServer(t, (path, body) =>
      path === "/auth/refresh" ? issued.refresh(body.refresh_token) : flat(code),
    );
    const { session } = sessionOf(client);
    await t.rejects(session.get("/api/v1/auth/me"), { kind, message: words }, code);
    t.ok(calls.length <= 4, "no loop");
  }
});

t.test("the configured password logs in at most every ten minutes, and only while it is right", async (t) => {
  const issued = tokens();
  let right = true;
  const { client, calls } = await consoleServer(t, (path, body, request) => {
    if (path === "/auth/refresh") return refused(401, "REFRESH_TOKEN_INVALID");
    if (path !== "/auth/login") return issued.check(request);
    return right && body.password === PASSWORD ? ok(issued.next()) : refused(401, "INVALID_CREDENTIALS");
  });
  const logins = () => calls.filter((path) => path === "/auth/login").length;
  let now = 0;
  const { session } = sessionOf(client, { now: () => now, credentials: CREDENTIALS });
  t.equal((await session.get("/api/v1/auth/me")).status, 200, "after the refused refresh token");
  issued.end();
  now += 9 * 60_000;
  await t.rejects(session.get("/api/v1/auth/me"), { name: "Error", kind: "failing" });
  t.equal(logins(), 1, "not again within ten minutes");
  now += 2 * 60_000;
  right = false;
  await t.rejects(session.get("/api/v1/auth/me"), { name: "Error", kind: "login-refused" });
  now += 3600_000;
  await t.rejects(session.get("/api/v1/auth/me"), { name: "Error", kind: "login-refused" });
  t.equal(logins(), 2, "a wrong password is not tried over and over");
});

t.test("a second factor cannot come from the configuration", async (t) => {
  const { client } = await consoleServer(t, () => ok({ requires_2fa: true, temp_token: "tt-1" }));
  const { session } = sessionOf(client, { refreshToken: null, credentials: CREDENTIALS });
  await t.rejects(session.get("/api/v1/auth/me"), { kind: "login-needed", message: /second factor/ });
});

t.test("a login by hand needs the password, then the second factor", async (t) => {
  const issued = tokens();
  const { client } = await consoleServer(t, (path, body) => {
    if (path === "/auth/login")
      return ok({ requires_2fa: true, temp_token: "tt-1", user_email_masked: "m***" });
    const right = body.temp_token === "tt-1" && body.totp_code === "123456";
    return right ? ok(issued.next()) : refused(400, "TOTP_INVALID_CODE");
  });
  const outcome = await loginSub2api(client, CREDENTIALS);
  if (outcome.state !== "second-factor") throw new Error("no second factor was asked for");
  await t.rejects(secondFactor(client, outcome.tempToken, new Secret("999999")), {
    name: "Error",
    kind: "login-refused",
  });
  const { refreshToken, expiresIn } = await secondFactor(client, outcome.tempToken, new Secret("123456"));
  t.ok(refreshToken?.equals(new Secret("rt-1")));
  t.equal(expiresIn, 3600);
});

t.test("a refused login says why, without the password", async (t) => {
  const echo = `wrong: ${PASSWORD}`;
  const cases: [Reply, string, RegExp][] = [
    [
      [401, { code: 401, message: echo, reason: "INVALID_CREDENTIALS" }],
      "login-refused",
      /email and password: wrong: \[redacted\]/,
    ],
    [refused(400, "TURNSTILE_VERIFICATION_FAILED"), "login-refused", /captcha.*--refresh-token/],
    [[400, { code: 400, message: "tencent captcha ticket is required" }], "login-refused", /captcha/],
    [[500, { code: 500, message: echo }], "failing", /500: wrong: \[redacted\]/],
    [
      [429, { code: "RATE_LIMITED", message: "slow down" }, { "retry-after": "30" }],
      "rate-limited",
      /too many requests/,
    ],
    [ok({ access_token: "a\r\nx-evil: 1" }), "other-shape", /access_token/],
    [ok({ user: {} }), "other-shape", /access_token/],
  ];
  for (const [reply, kind, words] of cases) {
    const { client } = await consoleServer(t, () => reply);
    const error = await loginSub2api(client, CREDENTIALS).catch((error: unknown) => error);
    t.match(error, { kind, message: words });
    t.notOk(CREDENTIALS.password.isIn(String(error)));
  }
});

/** Every character as its number. */
const escaped = (text: string) =>
  [...text].map((letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");

t.test("a secret that the console echoes is redacted in every encoding", async (t) => {
  const temp = new Secret("tt-7");
  const code = new Secret("123456");
  const access = new Secret("at-secret-7");
  const refresh = new Secret("rt-secret-7");
  const ways: [string, (said: string) => Reply][] = [
    ["a refusal", (said) => [400, { code: 400, message: `you said ${said}` }]],
    ["a 200 that is none", (said) => [200, { code: 400, message: `you said ${said}` }]],
    ["a text for a code", (said) => [200, { code: "0", message: `you said ${said}` }]],
    ["two codes", (said) => [200, `{"code":0,"code":7,"message":${JSON.stringify(`you said ${said}`)}}`]],
    ["in numbers", (said) => [200, `{"code":7,"message":"you said ${escaped(said)}"}`]],
    ["a failure", (said) => [500, { code: 500, message: `you said ${said}` }]],
  ];
  for (const [name, say] of ways) {
    const { client } = await consoleServer(t, (path, body, request) => {
      if (path === "/auth/login") return say(String(body.password));
      if (path === "/auth/login/2fa") return say(`${body.temp_token} and ${body.totp_code}`);
      if (path === "/auth/refresh" && body.refresh_token === "rt-0")
        return ok({ access_token: "at-secret-7", refresh_token: "rt-1", expires_in: 3600 });
      if (path === "/auth/refresh") return say(String(body.refresh_token));
      return say(String(request.headers.authorization));
    });
    const login = await loginSub2api(client, CREDENTIALS).catch(String);
    const factor = await secondFactor(client, temp, code).catch(String);
    const { session } = sessionOf(client, { refreshToken: refresh });
    const renewal = await session.get("/api/v1/auth/me").catch(String);
    const adapter = new Sub2api({
      client,
      session: sessionOf(client).session,
      now: () => 0,
      pause: async () => {},
    });
    const asking = await adapter.keys().catch(String);
    for (const [what, said, secrets] of [
      ["the password", login, [CREDENTIALS.password]],
      ["the second factor", factor, [temp, code]],
      ["the refresh token", renewal, [refresh]],
      ["the access token", asking, [access]],
    ] as const) {
      t.match(said, /you said .*\[redacted\]/, `${name}: ${what}`);
      t.notOk(
        secrets.some((secret) => secret.isIn(String(said))),
        `${name}: not ${what}`,
      );
    }
  }
});

t.test("a redirect to another origin gets no credential", async (t) => {
  const elsewhere = await consoleServer(t, () => ok({ balance: 1 }));
  const issued = tokens();
  const { client } = await consoleServer(t, (path, body) =>
    path === "/auth/refresh"
      ? issued.refresh(body.refresh_token)
      : [307, "", { location: `${elsewhere.url}${path}` }],
  );
  const { session } = sessionOf(client);
  const adapter = new Sub2api({ client, session, now: () => 0, pause: async () => {} });
  await t.rejects(adapter.account(), { kind: "not-a-console", message: /redirect/ });
  await t.rejects(adapter.keys(), { name: "Error", kind: "not-a-console" });
  await t.rejects(loginSub2api(client, CREDENTIALS), { name: "Error", kind: "not-a-console" });
  t.same(elsewhere.calls, []);
});

t.test("keys are read over all pages, whole or by their ends, with what they may spend", async (t) => {
  const whole = `sk-${"ab12".repeat(16)}`;
  const key = (id: number, more: object = {}) => ({
    id,
    name: `key ${id}`,
    key: whole,
    group_id: 4,
    status: "active",
    quota: 0,
    quota_used: 0.5,
    ...more,
  });
  const group = { id: 4, name: "coding", rate_multiplier: 1.5 };
  const all = [
    key(1, { group, expires_at: "2027-01-01T00:00:00Z", last_used_at: "0001-01-01T00:00:00Z" }),
    key(2, {
      group: { ...group, id: 5 },
      group_id: 5,
      key: "sk-abcd…wxyz",
      quota: 2.5,
      status: "quota_exhausted",
    }),
    key(3, { key: "sk-abcd**********wxyz", status: "inactive", group_id: null }),
    key(4, {
      key: "",
      status: "odd",
      rate_limit_5h: 5,
      usage_5h: 1.25,
      reset_5h_at: "2026-11-15T15:00:00Z",
      rate_limit_1d: 0,
    }),
    ...Array.from({ length: 140 }, (_, i) => key(i + 5)),
  ];
  const issued = tokens();
  const { client, calls } = await consoleServer(t, (path, body, request) => {
    if (path === "/auth/refresh") return issued.refresh(body.refresh_token);
    if (path === "/groups/rates") return ok({ "5": 0.8 });
    const page = Number(new URL(request.url ?? "", "http://x").searchParams.get("page"));
    return ok({ items: all.slice((page - 1) * 100, page * 100), total: all.length });
  });
  const { session } = sessionOf(client);
  const keys = await new Sub2api({ client, session, now: () => 0, pause: async () => {} }).keys();
  t.equal(keys.length, all.length);
  t.equal(calls.filter((path) => path === "/keys").length, 2);
  const [one, two, three, four] = keys;
  t.match(one, {
    ref: "id:1",
    group: "coding",
    multiplier: 1.5,
    state: "active",
    quota: null,
    // Without a quota the console does not count.
    quota_used: null,
  });
  t.match(one, { expires_at: Date.parse("2027-01-01T00:00:00Z"), last_used_at: null });
  t.ok(one?.shown.how === "whole" && one.shown.key.equals(new Secret(whole)));
  t.notMatch(JSON.stringify(keys), "ab12ab12");
  t.match(two, { multiplier: 0.8, state: "quota-exhausted", quota: 2_500_000, quota_used: 500_000 });
  t.same(two?.shown, { how: "ends", head: "abcd", tail: "wxyz" });
  t.same(three?.shown, { how: "ends", head: "abcd", tail: "wxyz" });
  t.match(three, { state: "disabled", group: null, multiplier: null });
  t.same(four?.shown, { how: "hidden" });
  t.same(four?.windows, [
    { window: "5h", most: 5_000_000, used: 1_250_000, resets_at: Date.parse("2026-11-15T15:00:00Z") },
  ]);
  t.equal(four?.state, "unknown");
});

t.test("an account that the console does not list is unknown, not zero", async (t) => {
  const issued = tokens();
  const { client } = await consoleServer(t, (path, body) =>
    path === "/auth/refresh" ? issued.refresh(body.refresh_token) : [404, "404 page not found"],
  );
  const { session } = sessionOf(client);
  const adapter = new Sub2api({ client, session, now: () => 0, pause: async () => {} });
  t.same(await adapter.account(), { balance: null, console_version: null });
});
