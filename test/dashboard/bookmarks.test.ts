import { generateKeyPairSync } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { BrowsersAnswer } from "../../src/control/browsers.ts";
import type { Digits } from "../../src/control/confirmation.ts";
import { advice } from "../../src/core/advice.ts";
import type { PlanAnswer } from "../../src/dashboard/api.ts";
import { Bookmarks, bookmarkProblem } from "../../src/dashboard/bookmarks/bookmarks.ts";
import type { Failure } from "../../src/dashboard/failure.ts";
import { Sessions } from "../../src/dashboard/sessions.ts";
import { advised, command } from "../doubles/command.ts";
import { type DaemonUnderTest, startUnderTest } from "../doubles/daemon-under-test.ts";
import { say, type Visit, visit } from "../doubles/dashboard-visit.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { freePort } from "../doubles/listen.ts";
import { controlOf } from "../doubles/mirror-journey.ts";
import { asOtherUser, cannotBeOtherUser } from "../doubles/other-user.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import {
  askChallenge,
  type BrowserDouble,
  browserDouble,
  proofOf,
  prove,
} from "../doubles/remembered-browser.ts";
import { until } from "../doubles/until.ts";

const ORIGIN = "http://localhost:5398";
const DAY = 86_400_000;
const UNKNOWN = /^this browser is not remembered, or not any more → keybearer open$/;

function prepare(t: Test) {
  const folder = mkdtempSync(join(tmpdir(), "kb-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "browsers.json");
  const clock = heldClock();
  const watch = { onChange: () => {} };
  const sessions = new Sessions(clock, () => watch.onChange());
  const lines: string[] = [];
  const here: { problem: ReturnType<typeof bookmarkProblem> } = { problem: null };
  const make = () =>
    new Bookmarks({ file, clock, log: quietLog(lines), sessions, problem: () => here.problem });
  const bookmarks = make();
  return {
    file,
    clock,
    sessions,
    /** Called when a session begins or ends. */
    watch,
    bookmarks,
    here,
    make,
    log: () => lines.join(""),
    async remember(name: string, origin = ORIGIN): Promise<BrowserDouble> {
      const browser = await browserDouble();
      await bookmarks.remember({ name, public_key: browser.publicKey, origin });
      return browser;
    },
    async prove(browser: BrowserDouble, origin = ORIGIN) {
      const challenge = bookmarks.challenge(browser.publicKey, origin);
      const signature = await browser.sign(origin, challenge);
      return { public_key: browser.publicKey, challenge, signature };
    },
  };
}

const isOpen = (sessions: Sessions, token: string | null) => sessions.begin(token ?? "", () => {}) !== null;

t.test("a signature is good for one session, and a daemon that starts later knows the browser", async (t) => {
  const { bookmarks, sessions, remember, prove, make, file, log } = prepare(t);
  const browser = await remember("laptop");
  const proof = await prove(browser);
  const token = bookmarks.exchange(proof, ORIGIN);
  t.ok(isOpen(sessions, token));
  t.equal(bookmarks.exchange(proof, ORIGIN), null, "sent again, it is worth nothing");
  t.not(bookmarks.challenge(browser.publicKey, ORIGIN), proof.challenge);
  t.match(make().list(), { why: null, browsers: [{ name: "laptop", origin: ORIGIN }] });
  t.equal(statSync(file).mode & 0o777, 0o600);
  for (const secret of [token ?? "", proof.challenge, proof.signature, browser.publicKey])
    t.notOk(log().includes(secret), "the log names the browser alone");
  for (const secret of [token ?? "", proof.challenge]) t.notOk(readFileSync(file, "utf8").includes(secret));
});

t.test(
  "a challenge is for one key, at one address, within a minute, and for its own signature",
  async (t) => {
    const { bookmarks, clock, remember, prove } = prepare(t);
    const laptop = await remember("laptop");
    const desk = await remember("desk");
    const ofLaptop = await prove(laptop);
    const ofDesk = await prove(desk);
    t.equal(
      bookmarks.exchange({ ...ofDesk, challenge: ofLaptop.challenge }, ORIGIN),
      null,
      "another key's challenge",
    );
    t.equal(bookmarks.exchange(ofLaptop, ORIGIN), null, "which is used up by that");
    const other = await prove(laptop);
    const elsewhere = await laptop.sign("http://127.0.0.1:5398", other.challenge);
    t.equal(
      bookmarks.exchange({ ...other, signature: elsewhere }, ORIGIN),
      null,
      "signed for another address",
    );
    t.equal(
      bookmarks.exchange(await prove(laptop), "http://127.0.0.1:5398"),
      null,
      "sent to another address",
    );
    t.throws(() => bookmarks.challenge(laptop.publicKey, "http://127.0.0.1:5398"), { message: UNKNOWN });
    const imposter = await browserDouble();
    const { challenge } = await prove(laptop);
    const forged = await imposter.sign(ORIGIN, challenge);
    t.equal(bookmarks.exchange({ public_key: laptop.publicKey, challenge, signature: forged }, ORIGIN), null);
    for (const signature of ["", "x", "AAAA", ofLaptop.signature, `${"A".repeat(86)}`])
      t.equal(
        bookmarks.exchange({ ...(await prove(laptop)), signature }, ORIGIN),
        null,
        `signature ${signature}`,
      );
    t.equal(bookmarks.exchange({ ...ofLaptop, challenge: "made up" }, ORIGIN), null);
    const early = await prove(laptop);
    const late = await prove(laptop);
    clock.pass(59_999);
    t.not(bookmarks.exchange(early, ORIGIN), null);
    clock.pass(1);
    t.equal(bookmarks.exchange(late, ORIGIN), null, "a minute is over");
  },
);

t.test("a browser that is revoked, or was not used for 90 days, gets nothing", async (t) => {
  const { bookmarks, clock, sessions, remember, prove } = prepare(t);
  const laptop = await remember("laptop");
  const desk = await remember("desk");
  let cut = 0;
  const token = bookmarks.exchange(await prove(laptop), ORIGIN) ?? "";
  sessions.begin(token, () => {
    cut += 1;
  });
  const ofDesk = bookmarks.exchange(await prove(desk), ORIGIN);
  const waiting = await prove(laptop);
  t.same(await bookmarks.revoke("laptop"), {});
  t.equal(cut, 1, "what it followed is cut");
  t.notOk(isOpen(sessions, token), "its session has ended");
  t.ok(isOpen(sessions, ofDesk), "the other one's goes on");
  t.throws(
    () => bookmarks.exchange(waiting, ORIGIN),
    { message: UNKNOWN },
    "also with a challenge of before",
  );
  t.throws(() => bookmarks.challenge(laptop.publicKey, ORIGIN), { message: UNKNOWN });
  t.equal(await bookmarks.revoke("laptop"), null);

  clock.pass(89 * DAY);
  t.not(bookmarks.exchange(await prove(desk), ORIGIN), null);
  await until("the use is noted", () => bookmarks.list().browsers[0]?.used_at === clock.now());
  clock.pass(90 * DAY - 1);
  t.equal(bookmarks.list().browsers.length, 1, "each use counts anew");
  clock.pass(1);
  t.throws(() => bookmarks.challenge(desk.publicKey, ORIGIN), { message: UNKNOWN });
  t.same(bookmarks.list().browsers, []);
});

t.test("a session that begins while its browser is revoked ends with the others", async (t) => {
  const { bookmarks, sessions, watch, remember, prove } = prepare(t);
  const browser = await remember("laptop");
  bookmarks.exchange(await prove(browser), ORIGIN);
  const proof = await prove(browser);
  let token: string | null = null;
  watch.onChange = () => {
    watch.onChange = () => {};
    // Its sessions have ended, and the list still names it.
    token = bookmarks.exchange(proof, ORIGIN);
  };
  await bookmarks.revoke("laptop");
  t.type(token, "string");
  t.notOk(isOpen(sessions, token));
});

t.test("the sessions of a browser that the list does not name end, and no others", async (t) => {
  const { bookmarks, sessions, clock, file, remember, prove } = prepare(t);
  const laptop = await remember("laptop");
  await remember("desk");
  const intact = readFileSync(file, "utf8");
  const ofTerminal = sessions.start(null);
  const begin = async () => {
    const token = bookmarks.exchange(await prove(laptop), ORIGIN);
    // Changes of the list wait for each other: the use is noted after this.
    await bookmarks.revoke("nobody");
    return token;
  };

  const token = await begin();
  bookmarks.endForgotten();
  t.ok(isOpen(sessions, token), "it is remembered");
  writeFileSync(file, "{");
  await t.rejects(bookmarks.revoke("laptop"), { message: /is not as keybearer wrote it/ });
  t.notOk(isOpen(sessions, token), "a list that cannot be read names none");

  writeFileSync(file, intact);
  const another = await begin();
  await bookmarks.revoke("desk");
  t.ok(isOpen(sessions, another), "another one was revoked");
  rmSync(file);
  t.equal(await bookmarks.revoke("laptop"), null);
  t.notOk(isOpen(sessions, another), "the list is gone");

  writeFileSync(file, intact, { mode: 0o600 });
  const old = (await begin()) ?? "";
  let cut = 0;
  sessions.begin(old, () => {
    cut += 1;
  });
  clock.pass(90 * DAY);
  bookmarks.endForgotten();
  t.equal(cut, 1, "after 90 days its stream is cut too");
  t.notOk(isOpen(sessions, old));
  t.ok(isOpen(sessions, ofTerminal));
});

t.test("twenty browsers at most, each with a name and a key of its own", async (t) => {
  const { bookmarks, remember } = prepare(t);
  const first = await remember("b0");
  const another = (await browserDouble()).publicKey;
  t.throws(() => bookmarks.check({ name: "b0", public_key: another, origin: ORIGIN }), {
    message: /called b0 is remembered already.*→ keybearer open --revoke b0/,
  });
  t.throws(() => bookmarks.check({ name: "b1", public_key: first.publicKey, origin: ORIGIN }), {
    message: "this browser is remembered already",
  });
  for (let number = 1; number < 20; number += 1) await remember(`b${number}`);
  t.throws(() => bookmarks.check({ name: "b20", public_key: another, origin: ORIGIN }), {
    message: "20 browsers are remembered already → keybearer open --list",
  });
  await t.rejects(remember("b20"), { message: /20 browsers are remembered/ });
  t.equal(bookmarks.list().browsers.length, 20);
  t.equal(new Set(bookmarks.list().browsers.map(({ fingerprint }) => fingerprint)).size, 20);
});

t.test("only a public key of P-256 can be remembered", async (t) => {
  const { bookmarks } = prepare(t);
  const spki = (key: { export(options: { type: "spki"; format: "der" }): Buffer }) =>
    key.export({ type: "spki", format: "der" });
  const good = spki(generateKeyPairSync("ec", { namedCurve: "P-256" }).publicKey);
  const check = (bytes: Buffer) =>
    bookmarks.check({ name: "x", public_key: bytes.toString("base64url"), origin: ORIGIN });
  t.match(check(good), /^[\da-f]{4}( [\da-f]{4}){3}$/);
  for (const [name, bytes] of Object.entries({
    "P-384": spki(generateKeyPairSync("ec", { namedCurve: "P-384" }).publicKey),
    secp256k1: spki(generateKeyPairSync("ec", { namedCurve: "secp256k1" }).publicKey),
    Ed25519: spki(generateKeyPairSync("ed25519").publicKey),
    RSA: spki(generateKeyPairSync("rsa", { modulusLength: 2048 }).publicKey),
    nothing: Buffer.alloc(0),
    zeros: Buffer.alloc(91),
    "one byte more": Buffer.concat([good, Buffer.from([0])]),
    "not on the curve": Buffer.concat([good.subarray(0, -1), Buffer.from([(good.at(-1) ?? 0) ^ 1])]),
  }))
    t.throws(() => check(bytes), { message: /is not a public key of ECDSA P-256/ }, name);
  t.end();
});

t.test(
  "of a file that is broken, or that others can read, nothing is used and nothing is replaced",
  async (t) => {
    const { bookmarks, file, remember } = prepare(t);
    const { publicKey } = await remember("laptop");
    const intact = readFileSync(file, "utf8");
    const refused = async (words: RegExp, next: string | null) => {
      const before = readFileSync(file, "utf8");
      t.match(bookmarks.list(), { browsers: [], why: words, next });
      t.throws(() => bookmarks.challenge(publicKey, ORIGIN), { message: words });
      await t.rejects(remember("more"), { message: words });
      await t.rejects(bookmarks.revoke("laptop"), { message: words });
      t.equal(readFileSync(file, "utf8"), before);
    };
    for (const mode of [0o644, 0o620, 0o606]) {
      chmodSync(file, mode);
      await refused(/others can read or change/, `chmod 600 ${file}`);
    }
    chmodSync(file, 0o600);
    t.equal(bookmarks.list().browsers.length, 1, "and it is used again once it is private");
    for (const text of [
      "",
      "{",
      "[]",
      "{}",
      '{"browsers":{}}',
      '{"browsers":[{"name":"x"}]}',
      intact.slice(0, -9),
    ]) {
      writeFileSync(file, text);
      await refused(/is not as keybearer wrote it/, `rm ${file}`);
    }
    writeFileSync(file, intact);
    rmSync(file);
    writeFileSync(`${file}.mine`, intact, { mode: 0o600 });
    symlinkSync(`${file}.mine`, file);
    await refused(/is a link/, null);
  },
);

t.test("sixty challenges a minute are the most, also of keys that nobody remembers", async (t) => {
  const { bookmarks, clock, remember } = prepare(t);
  const laptop = await remember("laptop");
  const ask = (key: string) => {
    try {
      return bookmarks.challenge(key, ORIGIN).length;
    } catch (error) {
      return (error as { status: number }).status;
    }
  };
  const answers = Array.from({ length: 60 }, (_, at) => ask(at % 2 === 0 ? "unknown" : laptop.publicKey));
  t.same([...new Set(answers)], [404, 43]);
  t.equal(ask(laptop.publicKey), 429);
  clock.pass(60_000);
  t.equal(ask(laptop.publicKey), 43);
});

t.test("where the port is not always open, or users are not checked, entries are of no use", async (t) => {
  t.equal(bookmarkProblem("always", true), null);
  for (const problem of [
    bookmarkProblem("asked", true),
    bookmarkProblem("never", true),
    bookmarkProblem("always", false),
  ]) {
    const { bookmarks, here, remember, prove } = prepare(t);
    const browser = await remember("laptop");
    const proof = await prove(browser);
    here.problem = problem;
    const words = { message: /dashboard\.when is \w+ → write|does not show which user/ };
    t.throws(() => bookmarks.exchange(proof, ORIGIN), words);
    t.throws(() => bookmarks.challenge(browser.publicKey, ORIGIN), words);
    await t.rejects(remember("more"), words);
    t.match(bookmarks.list(), {
      browsers: [{ name: "laptop" }],
      why: problem?.parts.problem,
      next: problem?.parts.next,
      code: problem?.code,
    });
    t.type(bookmarks.list().next, "string", "what to do is said apart, so that a terminal does not break it");
    t.same(await bookmarks.revoke("laptop"), {}, "but they can be revoked");
  }
});

/* A real daemon. */

const inLinux = { skip: process.platform === "linux" ? false : "only Linux shows the user of a connection" };

interface Scene extends DaemonUnderTest {
  readonly page: Visit;
  readonly browser: BrowserDouble;
  /** Confirmed as `keybearer confirm` does. */
  remember(name: string, browser?: BrowserDouble): Promise<void>;
}

const configFor = (port: number) => `dashboard: { listen: localhost:${port}, when: always }
gateway: http://localhost:9/v1
tools: { codex: { key: sk-of-codex-0123456789 } }
`;

async function start(t: Test): Promise<Scene> {
  const under = await startUnderTest(t, configFor(await freePort()));
  const page = await visit(under.paths.socket);
  const browser = await browserDouble();
  return {
    ...under,
    page,
    browser,
    async remember(name, { publicKey } = browser) {
      const action = { kind: "remember-browser", name, public_key: publicKey };
      const { id } = (await page.post("/api/plan", action)).json<PlanAnswer>();
      const { digits } = await controlOf<Digits>(under.paths.socket, "POST", `/confirm/${id}`, {});
      const ran = await page.post("/api/run", { id, digits });
      if (ran.status !== 200) throw new Error(`${ran.status} ${ran.text}`);
    },
  };
}

const failureOf = ({ text }: { readonly text: string }) => (JSON.parse(text) as Failure).error;

t.test(
  "a page alone cannot have a browser remembered, and a person sees which one it is",
  inLinux,
  async (t) => {
    const { page, browser, paths } = await start(t);
    const action = { kind: "remember-browser", name: "laptop", public_key: browser.publicKey };
    const planned = (await page.post("/api/plan", action)).json<PlanAnswer>();
    t.match(planned, { needs_digits: true, undo: "keybearer open --revoke laptop" });
    t.match(planned.diff, [
      "+ browser laptop",
      /^\+ key [\da-f ]{19}$/,
      `+ opens ${new URL(page.url).origin}`,
    ]);
    for (const digits of [null, "000000"])
      t.equal((await page.post("/api/run", { id: planned.id, digits })).status, 403);
    t.equal((await askChallenge(page.url, browser.publicKey)).status, 404);
    t.notOk(existsSync(paths.browsers));
    for (const wrong of [
      { ...action, name: "a b" },
      { ...action, public_key: "x" },
      { ...action, public_key: "A".repeat(122) },
    ])
      t.equal((await page.post("/api/plan", wrong)).status, 400);
  },
);

t.test("a remembered browser gets an ordinary session, until it is revoked", inLinux, async (t) => {
  const { page, browser, remember, paths, logText, home } = await start(t);
  await remember("laptop");
  const listed = (await page.get("/api/browsers")).json<BrowsersAnswer>();
  t.match(listed, { why: null, browsers: [{ name: "laptop", public_key: browser.publicKey }] });
  const proof = await proofOf(page.url, browser);
  const answer = await prove(page.url, proof);
  t.equal(answer.status, 200, answer.text);
  const { token } = answer.json<{ token: string }>();
  const headers = { authorization: `Bearer ${token}` };
  const now = async () => (await say(page.url, "/api/now", { headers })).status;
  t.equal(await now(), 200);
  const again = await prove(page.url, proof);
  t.equal(again.status, 401);
  t.match(failureOf(again), /signature of this browser does not hold → keybearer open/);
  const followed = await fetch(`${page.url}api/events`, { headers });
  const reader = followed.body?.getReader();
  t.match(new TextDecoder().decode((await reader?.read())?.value), /^\{"following":true\}\n/);

  t.match(await command(t, home, ["open", "--revoke", "laptop"]), {
    code: 0,
    stdout: /not remembered any more/,
  });
  await t.rejects(async () => {
    for (let piece = await reader?.read(); piece?.done === false; piece = await reader?.read());
    throw new Error("the events have ended");
  });
  t.equal(await now(), 401);
  t.equal((await askChallenge(page.url, browser.publicKey)).status, 404);
  t.equal((await page.get("/api/now")).status, 200, "the session of the terminal goes on");
  const written = `${logText()}${readFileSync(paths.browsers, "utf8")}`;
  for (const secret of [token, proof.challenge, proof.signature]) t.notOk(written.includes(secret));
  t.notOk(logText().includes(browser.publicKey));
});

t.test("a page revokes a browser at once, its own too", inLinux, async (t) => {
  const { page, browser, remember } = await start(t);
  await remember("laptop");
  const { token } = (await prove(page.url, await proofOf(page.url, browser))).json<{ token: string }>();
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const post = (path: string, body: unknown) =>
    say(page.url, path, { method: "POST", headers, body: JSON.stringify(body) });
  const { id, needs_digits } = (
    await post("/api/plan", { kind: "revoke-browser", name: "laptop" })
  ).json<PlanAnswer>();
  t.equal(needs_digits, false);
  t.equal((await post("/api/run", { id, digits: null })).status, 200, "its answer still arrives");
  t.equal((await post("/api/plan", { kind: "revoke-browser", name: "laptop" })).status, 401);
});

t.test("over a restart a session goes on, and a revoked one does not come back", inLinux, async (t) => {
  const { page, browser, remember, daemon, home, paths } = await start(t);
  await remember("laptop");
  const { token } = (await prove(page.url, await proofOf(page.url, browser))).json<{ token: string }>();
  const now = async () =>
    (await say(page.url, "/api/now", { headers: { authorization: `Bearer ${token}` } })).status;
  const file = join(paths.run, "dashboard-sessions.json");
  await daemon.stop(0);
  // Without the terminal's session, so that the browser's is the only one.
  const kept = JSON.parse(readFileSync(file, "utf8"));
  kept.sessions = kept.sessions.filter((each: { browser: unknown }) => each.browser !== null);
  t.equal(kept.sessions.length, 1);
  writeFileSync(file, JSON.stringify(kept));
  const second = await startUnderTest(t, null, { home });
  t.equal(await now(), 200);
  await controlOf(paths.socket, "POST", "/revokebrowser/laptop", {});
  t.equal(await now(), 401);
  await second.daemon.stop(0);
  await startUnderTest(t, null, { home });
  t.equal(await now(), 401);
  t.equal((await askChallenge(page.url, browser.publicKey)).status, 404);
});

t.test("the session of a browser that was forgotten meanwhile is not restored", inLinux, async (t) => {
  const { page, browser, remember, daemon, home, paths } = await start(t);
  await remember("laptop");
  const { token } = (await prove(page.url, await proofOf(page.url, browser))).json<{ token: string }>();
  await daemon.stop(0);
  t.match(readFileSync(join(paths.run, "dashboard-sessions.json"), "utf8"), browser.publicKey);
  rmSync(paths.browsers);
  await startUnderTest(t, null, { home });
  t.equal((await say(page.url, "/api/now", { headers: { authorization: `Bearer ${token}` } })).status, 401);
  t.equal((await page.get("/api/now")).status, 200, "the session of the terminal goes on");
});

t.test("another site, another name of the host and another address get no challenge", inLinux, async (t) => {
  const { page, browser, remember } = await start(t);
  await remember("laptop");
  const { port } = new URL(page.url);
  const proof = await proofOf(page.url, browser);
  for (const [status, headers] of [
    [403, { origin: "http://evil.example" }],
    [403, { origin: "null" }],
    [403, { origin: `http://127.0.0.1:${port}` }],
    [403, { "sec-fetch-site": "cross-site" }],
    [403, { "sec-fetch-site": "same-site" }],
    [421, { host: "evil.example" }],
    [421, { host: `rebind.example:${port}` }],
    [415, { "content-type": "text/plain" }],
  ] as const) {
    t.equal(
      (await askChallenge(page.url, browser.publicKey, headers)).status,
      status,
      JSON.stringify(headers),
    );
    t.equal((await prove(page.url, proof, headers)).status, status, JSON.stringify(headers));
  }
  const byNumber = { host: `127.0.0.1:${port}` };
  t.equal((await askChallenge(page.url, browser.publicKey, byNumber)).status, 404);
  for (const body of ["{}", "[]", "null", '{"public_key":1}', `{"public_key":"x","more":1}`]) {
    const headers = { "content-type": "application/json" };
    t.equal((await say(page.url, "/api/challenge", { method: "POST", headers, body })).status, 400, body);
  }
  t.equal((await say(page.url, `/api/challenge?public_key=${browser.publicKey}`)).status, 401, "only a POST");
  t.equal((await prove(page.url, proof)).status, 200, "none of that used the challenge up");
  const used = await proofOf(page.url, browser);
  t.equal((await prove(page.url, used, byNumber)).status, 401, "and it is for one address");
});

t.test(
  "another user with the browser's own signature gets nothing, and does not use it up",
  { skip: cannotBeOtherUser() },
  async (t) => {
    const { page, browser, remember } = await start(t);
    await remember("laptop");
    const proof = await proofOf(page.url, browser);
    const code = `
      const [url, body] = process.argv.slice(1);
      const answer = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body });
      console.log(answer.status, await answer.text());`;
    const asOther = (path: string, body: unknown) =>
      asOtherUser(t, code, new URL(path, page.url).href, JSON.stringify(body));
    t.match(await asOther("/api/session", proof), /^403 .*another user of this machine/);
    t.match(await asOther("/api/challenge", { public_key: browser.publicKey }), /^403 /);
    t.equal((await prove(page.url, proof)).status, 200, "the owner's browser is let in");
  },
);

t.test(
  "once the port is not always open, a remembered browser is refused, and its page says why",
  inLinux,
  async (t) => {
    const { page, browser, remember, save, paths } = await start(t);
    await remember("laptop");
    const config = readFileSync(paths.config, "utf8");
    await save(config.replace("when: always", "when: asked"));
    const action = { kind: "remember-browser", name: "more", public_key: (await browserDouble()).publicKey };
    await until(
      "it is applied",
      async () => (await askChallenge(page.url, browser.publicKey)).status === 409,
    );
    const refused = /only where its port is always open, and dashboard\.when is asked → write dashboard/;
    t.match(failureOf(await askChallenge(page.url, browser.publicKey)), refused);
    t.match(failureOf(await page.post("/api/plan", action)), refused);
    t.match((await page.get("/api/browsers")).json<BrowsersAnswer>(), {
      why: /dashboard\.when is asked/,
      browsers: [{ name: "laptop" }],
    });
    await save(config);
    await until("it may again", async () => (await askChallenge(page.url, browser.publicKey)).status === 200);
  },
);

t.test("each command about remembered browsers works where it is printed", inLinux, async (t) => {
  const { page, remember, home } = await start(t);
  t.match(await command(t, home, ["open", "--list"]), { code: 0, stdout: /no browser is remembered/ });
  await remember("laptop");
  await remember("desk", await browserDouble());
  const name = { kind: "remember-browser", name: "desk", public_key: (await browserDouble()).publicKey };
  const taken = failureOf(await page.post("/api/plan", name));
  t.match(await command(t, home, advised(t, taken, advice.revokeBrowser("desk"))), { code: 0 });
  for (let more = 1; more < 20; more += 1) await remember(`b${more}`, await browserDouble());
  const full = failureOf(await page.post("/api/plan", name));
  const listed = await command(t, home, advised(t, full, advice.browsers()));
  t.match(listed.stdout, /^name +key +made +last use +opens\nlaptop {2}[\da-f]{4}/);
  t.equal(listed.stdout.trimEnd().split("\n").length, 21);
  t.notMatch(listed.stdout, /desk/);
  const json = await command(t, home, ["open", "--list", "--json"]);
  t.match(JSON.parse(json.stdout), { browsers: [{ name: "laptop" }, { name: "b1" }], why: null });
  t.match(await command(t, home, ["open", "--revoke", "desk"]), {
    code: 1,
    stderr: /there is no remembered browser called desk/,
  });
  for (const args of [
    ["--list", "--print"],
    ["--revoke", "x", "--list"],
    ["--revoke", "x", "--json"],
  ])
    t.equal((await command(t, home, ["open", ...args])).code, 2, args.join(" "));
});
