import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { browserFor, startBrowser } from "../../src/cli/browser.ts";
import type { Clock } from "../../src/clock.ts";
import { systemClock } from "../../src/clock.ts";
import { createTail } from "../../src/control/tail.ts";
import { createAccess } from "../../src/dashboard/access.ts";
import { No } from "../../src/dashboard/answer.ts";
import { Dashboard, type DashboardMeans } from "../../src/dashboard/dashboard.ts";
import { createLogReader } from "../../src/dashboard/log-reader.ts";
import { adviceFor } from "../../src/dashboard/refusal-advice.ts";
import { createLogger } from "../../src/logger.ts";
import { createRunning } from "../../src/proxy/running.ts";
import { REFUSALS } from "../../src/refusal.ts";
import { say, trade, visitWith } from "../doubles/dashboard-visit.ts";
import { NO_MIRROR } from "../doubles/no-mirror.ts";
import { record } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";

/** A clock that stands still until it is moved. */
function heldClock(): Clock & { move(ms: number): void } {
  let at = 1_763_164_800_000;
  return {
    now: () => at,
    elapsed: () => at,
    move(ms) {
      at += ms;
    },
  };
}

t.test("a code is good for a minute, and not a moment longer", (t) => {
  const clock = heldClock();
  const access = createAccess(clock);
  const [early, late] = [access.issue(), access.issue()];
  clock.move(59_999);
  t.equal(access.trade(early.code).ok, true);
  clock.move(1);
  t.same(access.trade(late.code), { ok: false, why: "wrong" });
  t.end();
});

t.test("of many codes and sessions the oldest give way", (t) => {
  const access = createAccess(heldClock());
  const first = access.issue();
  for (let more = 0; more < 8; more += 1) access.issue();
  t.equal(access.trade(first.code).ok, false);
  const tokens = Array.from({ length: 17 }, () => {
    const traded = access.trade(access.issue().code);
    return traded.ok ? traded.token : "";
  });
  t.equal(new Set(tokens).size, 17);
  t.equal(access.admits(tokens[0] ?? ""), false);
  t.ok(tokens.slice(1).every((token) => access.admits(token)));
  access.forget();
  t.notOk(tokens.some((token) => access.admits(token)));
  t.end();
});

t.test("every refusal has words, and those that the owner can lift a next step", (t) => {
  for (const refusal of Object.keys(REFUSALS)) {
    const advice = adviceFor(record(1, { refusal, tool: "codex" }));
    t.notSame(advice?.words, refusal, refusal);
    t.notMatch(advice?.next ?? "", /undefined|null|<tool>/);
  }
  t.equal(adviceFor(record(1)), null);
  t.match(adviceFor(record(1, { refusal: "token-missing", tool: null }))?.next, /use <tool> --new-token/);
  t.end();
});

/** A dashboard whose daemon does nothing. */
function dashboard(t: Test, quietMs: number, clock: Clock) {
  const folder = mkdtempSync(join(tmpdir(), "kb-"));
  const lines: string[] = [];
  const log = createLogger({
    level: "info",
    destination: { write: (line: string) => void lines.push(line) },
    forPeople: false,
    secrets: () => [],
  });
  const tail = createTail();
  const means = {
    clock,
    log,
    tail,
    quietMs,
    version: "0",
    files: new Map([["/", { type: "text/html", body: Buffer.from("page") }]]),
    status: async () => ({ tools: [], machine: {}, uptime_s: 0 }),
    mirror: NO_MIRROR,
    models: () => null,
    running: createRunning(),
    reader: createLogReader(join(folder, "usage.db"), clock),
    settings: () => ({ listen: { host: "localhost", port: 0 }, when: "asked" }),
  } as unknown as DashboardMeans;
  const made = new Dashboard(means);
  t.teardown(async () => {
    await made.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  return { made, tail, log: () => lines.join("") };
}

t.test("the port closes when nobody uses it, but not under an open page", async (t) => {
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
  t.match(new TextDecoder().decode((await reader?.read())?.value), /^event: now\n/);
  // Whoever looks at the clock next finds that nothing was asked for long; but somebody looks on.
  clock.move(10_000);
  const moved = performance.now();
  await until("it had the time to close", () => performance.now() - moved > 200);
  t.equal((await say(url, "/")).status, 200);
  ending.abort();
  await reader?.closed.catch(() => {});
  await until("it is closed", () => {
    clock.move(10);
    return /closed: nobody used it for a while/.test(log());
  });
  await t.rejects(say(url, "/"), /ECONNREFUSED/);
  t.match((await made.open("test")).url, /^http:\/\/localhost:\d+\/$/, "and opens again");
});

t.test("a page that reads nothing is told how many records it lost, and none is kept for it", async (t) => {
  const { made, tail } = dashboard(t, 60_000, heldClock());
  const visited = await visitWith(await made.open("test"));
  const slow = await visited.follow();
  await until("it is there", () => slow.last("now") !== undefined);
  slow.answer.pause();
  const many = 20_000;
  for (let number = 0; number < many; number += 1) {
    tail.tell(record(number));
    // What the connection takes by itself is taken.
    if (number % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  slow.answer.resume();
  const told = () =>
    slow.events.map(({ name, data }) => (name === "lost" ? (data as { count: number }).count : 0));
  const records = () => slow.events.filter(({ name }) => name === "record").length;
  const lost = () => told().reduce((sum, count) => sum + count, 0);
  await until("it has heard of each, or how many it has not", () => records() + lost() === many);
  t.ok(records() > 0, "what there was room for came");
  t.ok(lost() > many / 4, `and ${lost()} of 20 MB did not wait for it`);
  slow.end();
});

t.test("asked while the log is not there, it says so and goes on", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kb-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const reader = createLogReader(join(folder, "none.db"), systemClock);
  const read = await reader.read(function* () {
    yield;
    return 1;
  });
  t.ok(read instanceof No && read.status === 503);
  t.match(read, { words: /there is no usage log yet/ });
});

t.test("a browser is started without a shell, where there is one", async (t) => {
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
