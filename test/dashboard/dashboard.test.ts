import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { browserFor, needsFile, startBrowser } from "../../src/cli/open.ts";
import { FreeMemory } from "../../src/control/status.ts";
import { Tail } from "../../src/control/tail.ts";
import type { Clock } from "../../src/core/clock.ts";
import { systemClock } from "../../src/core/clock.ts";
import { Connections } from "../../src/core/connections.ts";
import { createLogger } from "../../src/core/log.ts";
import { PeerLookup } from "../../src/core/peer-user.ts";
import { throttledLog } from "../../src/core/throttled-log.ts";
import type { Now } from "../../src/dashboard/api.ts";
import { Dashboard } from "../../src/dashboard/dashboard.ts";
import type { DashboardDeps } from "../../src/dashboard/deps.ts";
import { removeRedirects, writeRedirect } from "../../src/dashboard/redirect-file.ts";
import { readSessions, Sessions, writeSessions } from "../../src/dashboard/sessions.ts";
import { UsageQuestions } from "../../src/dashboard/usage-api.ts";
import { InFlight } from "../../src/proxy/in-flight.ts";
import { IndexError, openIndexForReading } from "../../src/usage/index/database.ts";
import type { Ask } from "../../src/usage/index/indexer.ts";
import { answerQuestion } from "../../src/usage/reports/questions.ts";
import { say, trade, visitWith } from "../doubles/dashboard-visit.ts";
import { longTest } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { makeIndex } from "../doubles/journal.ts";
import { freePort } from "../doubles/listen.ts";
import { NO_MIRROR } from "../doubles/no-mirror.ts";
import { asOtherUser, cannotBeOtherUser } from "../doubles/other-user.ts";
import { record } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

const begin = (sessions: Sessions, token = "") => sessions.begin(token, () => {});

t.test("a code works for one minute", (t) => {
  const clock = heldClock();
  const sessions = new Sessions(clock, () => {});
  const early = sessions.issueCode();
  const late = sessions.issueCode();
  clock.pass(59_999);
  t.type(sessions.exchange(early.code), "string");
  clock.pass(1);
  t.equal(sessions.exchange(late.code), null);
  t.end();
});

t.test("the oldest codes and sessions are dropped when there are too many", (t) => {
  const sessions = new Sessions(heldClock(), () => {});
  const first = sessions.issueCode();
  for (let more = 0; more < 8; more += 1) sessions.issueCode();
  t.equal(sessions.exchange(first.code), null);
  const tokens = Array.from({ length: 17 }, () => sessions.exchange(sessions.issueCode().code) ?? "");
  t.equal(new Set(tokens).size, 17);
  t.equal(begin(sessions, tokens[0]), null);
  t.ok(tokens.slice(1).every((token) => begin(sessions, token) !== null));
  sessions.endAll();
  t.ok(tokens.every((token) => begin(sessions, token) === null));
  t.end();
});

t.test("a session that is dropped for a newer one does not go on as a stream", (t) => {
  const sessions = new Sessions(heldClock(), () => {});
  const cut: string[] = [];
  const start = (name: string) => sessions.begin(sessions.start(name), () => cut.push(name));
  for (let number = 0; number < 16; number += 1) start(`b${number}`);
  t.same(cut, []);
  start("b16");
  start("b17");
  t.same(cut, ["b0", "b1"]);
  t.end();
});

const ASKED = { listen: { host: "localhost", port: 0 }, when: "asked" };

interface More {
  readonly settings?: object;
  /** The folder of sessions and redirect pages. */
  readonly run?: string;
  readonly retryMs?: number;
  readonly upkeepMs?: number;
  readonly status?: () => Promise<object>;
  readonly usage?: object;
}

const EMPTY = async () => ({ tools: [], machine: {}, uptime_s: 0 });

/** An index that is not there. */
async function unreadable(): Promise<never> {
  throw new IndexError("missing", "there is no none.db");
}

/** A dashboard whose daemon does nothing. */
function dashboard(t: Test, closeAfterMs: number, clock: Clock, more: More = {}) {
  const {
    settings = ASKED,
    run = temporaryFolder(t),
    retryMs = 10_000,
    upkeepMs = 20,
    status = EMPTY,
    ...others
  } = more;
  const lines: string[] = [];
  const log = createLogger({
    level: "info",
    destination: { write: (line: string) => void lines.push(line) },
    forPeople: false,
    secrets: [() => []],
  });
  const tail = new Tail();
  const deps = {
    clock,
    log,
    tail,
    paths: {
      run,
      index: join(run, "index.db"),
      mirror: join(run, "mirror.db"),
      config: join(run, "config.yaml"),
      browsers: join(run, "browsers.json"),
    },
    reload: { snapshot: { config: { dashboard: settings } } },
    usage: { ask: unreadable },
    inFlight: new InFlight(),
    controls: () => ({ sessions: () => [], status, mirror: NO_MIRROR }),
    peers: new PeerLookup(new Connections()),
    ...others,
  } as unknown as DashboardDeps;
  const made = new Dashboard(deps, { closeAfterMs, retryMs, upkeepMs });
  t.teardown(() => made.stop());
  return { made, log: () => lines.join("") };
}

function temporaryFolder(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), "kb-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A port that is taken until it is let go. */
async function takenPort(t: Test): Promise<{ port: number; letGo(): Promise<unknown> }> {
  const holder = createServer().listen(await freePort(), "127.0.0.1");
  await once(holder, "listening");
  t.teardown(() => holder.close());
  return {
    port: (holder.address() as AddressInfo).port,
    letGo: () => once(holder.close(), "close"),
  };
}

/** Opened later with the same quiet time, so it is checked later: what had to close before is closed by then. */
async function unusedOneCloses(t: Test, quietMs: number): Promise<void> {
  const clock = heldClock();
  const { made, log } = dashboard(t, quietMs, clock);
  await made.open("test");
  clock.pass(10_000);
  await until("an unused one is closed", () =>
    /closed the dashboard: it was not used for a while/.test(log()),
  );
}

t.test("the port stays open for the whole quiet time after a page closes", async (t) => {
  const clock = heldClock();
  const { made, log } = dashboard(t, 500, clock);
  const visited = await visitWith(await made.open("test"));
  const followed = await visited.follow();
  await until("it is there", () => followed.last("now") !== undefined);
  // It followed for long, and leaves right before the check whether the port is used.
  clock.pass(10_000);
  followed.end();
  await unusedOneCloses(t, 500);
  t.equal((await say(visited.url, "/")).status, 200);
  t.notMatch(log(), /closed/);
});

t.test("a download that has not begun to answer ends with its session", async (t) => {
  const waiting: ((part: object) => void)[] = [];
  const ask = () => new Promise<object>((resolve) => waiting.push(resolve));
  const { made } = dashboard(t, 60_000, systemClock, { usage: { ask } });
  const { get } = await visitWith(await made.open("test"));
  const download = get("/api/csv").then(
    ({ status }) => status,
    (error: NodeJS.ErrnoException) => error.code,
  );
  await until("it waits for its first part", () => waiting.length > 0);
  // Sixteen others take the place of its session.
  for (let more = 0; more < 16; more += 1) await visitWith(await made.open("test"));
  waiting[0]?.({ text: "a,b\r\n", after: null });
  t.equal(await download, "ECONNRESET");
});

t.test("a session of a browser ends soon after the list of browsers is gone", async (t) => {
  const run = temporaryFolder(t);
  const listen = { host: "localhost" as const, port: await freePort() };
  const now = systemClock.now();
  const browsers = join(run, "browsers.json");
  const kept = { name: "laptop", public_key: "key", origin: "http://localhost", made_at: now, used_at: now };
  writeFileSync(browsers, JSON.stringify({ browsers: [kept] }), { mode: 0o600 });
  const hash = createHash("sha256").update("kd_of-laptop").digest("hex");
  await writeSessions(join(run, "dashboard-sessions.json"), listen, [{ hash, used_at: now, browser: "key" }]);
  const { made } = dashboard(t, 900_000, systemClock, {
    settings: { listen, when: "asked" },
    run,
  });
  await made.applyConfig();
  const headers = { authorization: "Bearer kd_of-laptop" };
  const asked = async () =>
    (await say(made.status().address ?? "", "/api/nothing", { method: "POST", headers })).status;
  t.equal(await asked(), 404);
  rmSync(browsers);
  await until("its session has ended", async () => (await asked()) === 401);
});

t.test("only a session survives a restart within the quiet time", async (t) => {
  const folder = temporaryFolder(t);
  const file = join(folder, "dashboard-sessions.json");
  const { port, letGo } = await takenPort(t);
  await letGo();
  const quietMs = 900_000;
  const clock = heldClock();
  const asked = { listen: { host: "localhost" as const, port }, when: "asked" };
  const begin = async (settings: object = asked) => {
    const { made, log } = dashboard(t, quietMs, clock, { settings, run: folder });
    await made.applyConfig();
    return { made, log };
  };
  const first = await begin();
  t.equal(first.made.status().address, null, "closed until it is asked for");
  const { url, code } = await first.made.open("test");
  const visited = await visitWith({ url, code });
  const followed = await visited.follow();
  // Nothing is asked while it looks on: that is use all the same.
  clock.pass(quietMs - 1);
  await first.made.stop();
  await followed.ended;
  const text = readFileSync(file, "utf8");
  t.equal(statSync(file).mode & 0o777, 0o600);
  for (const secret of [code, visited.token]) t.notOk(text.includes(secret));
  t.equal(JSON.parse(text).sessions.length, 1);

  clock.pass(quietMs - 1);
  const second = await begin();
  t.equal(second.made.status().address, url, "open again by itself");
  t.equal((await visited.get("/api/now")).status, 200, "and the session holds");
  t.equal((await trade(url, code)).status, 401, "a code does not");
  await second.made.stop();
  const kept = readFileSync(file);

  const squatter = createServer().listen(port, "127.0.0.1");
  await once(squatter, "listening");
  const third = await begin();
  t.match(third.log(), /could not open the dashboard again: .* is taken/);
  await once(squatter.close(), "close");
  await third.made.open("test");
  t.equal((await visited.get("/api/now")).status, 401, "the program on the port may have seen the token");
  await third.made.stop();

  const restored = async (settings: object, later: number) => {
    await writeSessions(file, asked.listen, JSON.parse(kept.toString()).sessions);
    clock.pass(later);
    const { made } = await begin(settings);
    const { address } = made.status();
    await made.stop();
    return { address, left: readdirSync(folder).includes("dashboard-sessions.json") };
  };
  const closed = { address: null, left: false };
  t.same(await restored({ ...asked, when: "never" }, 0), closed, "never");
  t.same(await restored({ ...asked, listen: { host: "127.0.0.1", port } }, 0), closed, "another address");
  t.same(await restored(asked, 0), { address: url, left: true });
  t.same(await restored(asked, quietMs), closed, "the quiet time is over");
  t.same(await restored(asked, -2 * quietMs), closed, "from a time to come");
  t.same(await readSessions(join(folder, "nowhere.json"), asked.listen), [], "no file");
  for (const text of [
    "",
    "{",
    "null",
    "[]",
    '{"listen":1}',
    `{"listen":"localhost:${port}","sessions":[null,1,{}]}`,
  ]) {
    writeFileSync(join(folder, "broken.json"), text);
    t.same(await readSessions(join(folder, "broken.json"), asked.listen), [], text);
  }
});

t.test("with when: always, a taken port is tried again, and status says why", async (t) => {
  const { port, letGo } = await takenPort(t);
  const settings = { listen: { host: "localhost", port }, when: "always" };
  const { made, log } = dashboard(t, 60_000, systemClock, { settings, retryMs: 20 });
  await made.applyConfig();
  t.match(made.status(), { mode: "always", address: null, why: /the address of the dashboard, is taken by/ });
  const logged = () => log().match(/could not open the dashboard/g)?.length;
  await letGo();
  await until("it is open", () => made.status().address !== null);
  t.same(made.status(), { mode: "always", address: `http://localhost:${port}/`, why: null });
  t.equal(logged(), 1, "logged once for all attempts");
});

t.test(
  "another user who read the code gets nothing, and does not use it up",
  { skip: cannotBeOtherUser() },
  async (t) => {
    const { made, log } = dashboard(t, 60_000, systemClock);
    const opened = await made.open("test");
    const code = `
      const [url, init] = process.argv.slice(1);
      const answer = await fetch(url, JSON.parse(init));
      console.log(answer.status, await answer.text());`;
    const asOther = (path: string, init: object) =>
      asOtherUser(t, code, new URL(path, opened.url).href, JSON.stringify(init));
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ code: opened.code });
    const stolen = await asOther("/api/session", { method: "POST", headers, body });
    t.match(stolen, /^403 .*another user of this machine/);
    const visited = await visitWith(opened);
    t.equal((await visited.get("/api/now")).status, 200, "the owner is let in");
    t.match(await asOther("/api/now", { headers: { authorization: `Bearer ${visited.token}` } }), /^403 /);
    t.equal(
      log().match(/the dashboard refused another user of this machine/g)?.length,
      1,
      "said once a minute",
    );
  },
);

t.test("where other users can read arguments, a private page redirects the browser", async (t) => {
  t.same(["linux", "darwin"].map(needsFile), [false, true]);
  const folder = temporaryFolder(t);
  const file = await writeRedirect(folder, 'http://localhost:1/#code=kd_x"&<');
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.match(readFileSync(file, "utf8"), 'content="0;url=http://localhost:1/#code=kd_x&quot;&amp;&lt;"');
  const { mtimeMs } = statSync(file);
  await removeRedirects(folder, mtimeMs + 59_999);
  t.equal(readdirSync(folder).length, 1);
  await removeRedirects(folder, mtimeMs + 60_000);
  t.equal(readdirSync(folder).length, 0);
  await writeRedirect(folder, "http://localhost:1/#code=kd_y");
  const { made } = dashboard(t, 60_000, systemClock, { run: folder });
  await made.applyConfig();
  t.equal(readdirSync(folder).length, 0, "nor is one of before left");
});

t.test("repeated events are logged once at first, then as a sum", async (t) => {
  const lines: string[] = [];
  const warn = (line: unknown) => void lines.push(String(line));
  const happened = throttledLog({ warn }, 30);
  for (let number = 0; number < 100; number += 1) happened("it happened");
  t.same(lines, ["it happened"]);
  await until("the sum", () => lines.length === 2);
  t.match(lines[1], /^it happened: 99 more times/);
  happened("it happened");
  await until("one more", () => lines.length === 3);
  t.match(lines[2], /^it happened: 1 more times/, "the next minute is a sum, too");
});

t.test("an unused port closes, but not under an open page", async (t) => {
  const clock = heldClock();
  const { made, log } = dashboard(t, 50, clock);
  const { url, code } = await made.open("test");
  const { token } = (await trade(url, code)).json<{ token: string }>();
  const ending = new AbortController();
  const followed = fetch(`${url}api/events`, {
    headers: { authorization: `Bearer ${token}` },
    signal: ending.signal,
  });
  const reader = (await followed).body?.getReader();
  t.match(new TextDecoder().decode((await reader?.read())?.value), /^\{"following":true\}\n/);
  // Nothing was asked for a long time, but a page follows.
  clock.pass(10_000);
  await unusedOneCloses(t, 50);
  t.equal((await say(url, "/")).status, 200);
  ending.abort();
  await reader?.closed.catch(() => {});
  await until("it is closed", () => {
    clock.pass(10);
    return /closed the dashboard: it was not used for a while/.test(log());
  });
  await t.rejects(say(url, "/"), /ECONNREFUSED/);
  t.match((await made.open("test")).url, /^http:\/\/localhost:\d+\/$/, "and opens again");
});

longTest(
  t,
  "a page that was behind gets the current state once it reads again, and no older one",
  async (t) => {
    const clock = heldClock();
    let asked = 0;
    const status = async () => {
      asked += 1;
      // So large that the connection cannot take three of them.
      return { tools: [], machine: {}, uptime_s: 0, pid: asked, pad: "x".repeat(8_000_000) };
    };
    const { made } = dashboard(t, 60_000, clock, { status });
    const slow = await (await visitWith(await made.open("test"))).follow();
    await until("it is there", () => slow.last("now") !== undefined);
    slow.answer.pause();
    const states = 5;
    for (let next = asked + 1; next <= states; next += 1) {
      clock.pass(1000);
      await until("the status is read again", () => asked === next);
    }
    slow.answer.resume();
    await until("it knows", () => slow.last("now")?.status.pid === states);
    t.ok(slow.events.filter(({ name }) => name === "now").length < states, "what it missed was not kept");
    slow.end();
  },
);

t.test("the machine's memory is read at most once in ten seconds", async (t) => {
  const clock = heldClock();
  let reads = 0;
  const memory = new FreeMemory(clock, async () => {
    reads += 1;
    return reads;
  });
  for (let second = 0; second < 10; second += 1) {
    t.equal(await memory.read(), 1, `after ${second} s`);
    clock.pass(1000);
  }
  t.equal(await memory.read(), 2);
});

t.test("an index that cannot be read is reported, and nobody waits longer than there is room", async (t) => {
  const usage = new UsageQuestions(unreadable);
  await t.rejects(usage.page(new URLSearchParams(), new AbortController().signal), {
    status: 503,
    message: "the usage index cannot be read: there is no none.db → keybearer status",
  });
  const busy = new UsageQuestions(() => new Promise(() => {}));
  for (let number = 0; number < 32; number += 1) void busy.ask("today", [0]);
  await t.rejects(busy.ask("today", [0]), { status: 503, message: /too many requests are waiting/ });
});

t.test("what a page asked of the log is given up when the page is gone", async (t) => {
  const signals: (AbortSignal | undefined)[] = [];
  const ask = (_name: unknown, _values: unknown, signal?: AbortSignal) => {
    signals.push(signal);
    return new Promise<never>(() => {});
  };
  const { made } = dashboard(t, 60_000, systemClock, { usage: { ask } });
  const { url, token } = await visitWith(await made.open("test"));
  const id = record(1).id;
  for (const path of ["usage", "records", `records/${id}`, "csv", "bill?month=2026-10"]) {
    signals.length = 0;
    const page = new AbortController();
    const headers = { authorization: `Bearer ${token}` };
    const answer = fetch(new URL(`/api/${path}`, url), { headers, signal: page.signal });
    await until(`${path} is asked`, () => signals.length > 0);
    page.abort();
    await t.rejects(answer);
    await until(`${path} is given up`, () => signals.every((signal) => signal?.aborted));
  }
});

t.test("the page is there before the log is read", async (t) => {
  const asked: (() => void)[] = [];
  const ask = () => new Promise<never>((_, reject) => asked.push(() => reject(new IndexError("busy", "x"))));
  const { made } = dashboard(t, 60_000, systemClock, { usage: { ask } });
  const visit = await visitWith(await made.open("test"));
  const followed = await visit.follow();
  await until("it has its first state", () => followed.last("now") !== undefined);
  t.match(followed.last("now"), { today: null, sessions: [], refusals: [] });
  followed.end();
  for (const end of asked) end();
});

t.test("what could not be read is asked for again a second later, and what was read stays", async (t) => {
  const state = temporaryFolder(t);
  const clock = heldClock();
  const one = record(1, { session: "run-1", started_at: clock.now() });
  const { db, close } = openIndexForReading(makeIndex(state, [one]));
  t.teardown(close);
  let works = false;
  const ask: Ask = async (name, values) => {
    if (!works) return await unreadable();
    return answerQuestion(db, name, values) as never;
  };
  const { made } = dashboard(t, 60_000, clock, { usage: { ask } });
  const visit = await visitWith(await made.open("test"));
  const now = async () => (await visit.get("/api/now")).json<Now>();
  t.match(await now(), { today: null, sessions: [] });
  works = true;
  t.match(await now(), { today: null, sessions: [] });
  clock.pass(1000);
  t.match(await now(), { today: { total: { requests: 1 } }, sessions: [{ session: "run-1" }] });
  works = false;
  clock.pass(15_000);
  t.match(await now(), { today: null, sessions: [{ session: "run-1" }] });
});

t.test("a browser is started without a shell", async (t) => {
  t.same(browserFor("darwin", {}), ["open"]);
  t.equal(browserFor("darwin", { SSH_CONNECTION: "x" }), null);
  t.equal(browserFor("linux", {}), null);
  t.same(browserFor("linux", { WAYLAND_DISPLAY: "wayland-0" }), ["xdg-open"]);
  t.same(browserFor("linux", { WSL_DISTRO_NAME: "Debian", DISPLAY: ":0" }), ["wslview"]);
  const check = 'process.exit(process.argv[1] === "http://localhost:1/#code=$(id);&" ? 0 : 1)';
  const node: [string, ...string[]] = [process.execPath, "-e", check];
  t.equal(await startBrowser(node, "http://localhost:1/#code=$(id);&", {}), true, "handed over as it is");
  t.equal(await startBrowser([process.execPath, "-e", "process.exit(3)"], "x", {}), false);
  t.equal(await startBrowser(["/nowhere/xdg-open"], "x", {}), false);
});
