import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Browser, Page } from "playwright-core";
import t, { type Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import { findBrowser, startBrowser } from "../doubles/browser.ts";
import { newHome } from "../doubles/command.ts";
import type { ConsoleDouble } from "../doubles/consoles/console-double.ts";
import { startConsole } from "../doubles/consoles/start-console.ts";
import { type DaemonUnderTest, startUnderTest } from "../doubles/daemon-under-test.ts";
import { openDashboard } from "../doubles/dashboard-visit.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { writeJournal } from "../doubles/journal.ts";
import {
  type Caller,
  configFor,
  DAY,
  fingerprint,
  HOUR,
  MINUTE,
  type MirrorJourney,
  startBeside,
} from "../doubles/mirror-journey.ts";
import { plausible } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";

/*
 * Pictures of the dashboard, for looking at: `npm run screenshots -- folder`. The built page (npm run build), a daemon
 * with two weeks behind it, and the system's Chromium.
 */

const ZONE = "Asia/Shanghai";
const WIDE = { width: 1280, height: 860 };
const NARROW = { width: 390, height: 844 };
/** A picture is for looking at: no test fails because it was taken too early. */
const SETTLED_MS = 500;
const TIME_LIMIT_MS = 240_000;
const PAGES = ["overview", "usage", "tools", "bill", "events"] as const;

interface Look {
  readonly name: string;
  readonly size: { readonly width: number; readonly height: number };
  readonly colorScheme: "light" | "dark";
  readonly locale: string;
}

const PLAIN: Look = { name: "light-1280", size: WIDE, colorScheme: "light", locale: "en-GB" };
const LOOKS: readonly Look[] = [
  PLAIN,
  { name: "dark-1280", size: WIDE, colorScheme: "dark", locale: "en-GB" },
  { name: "light-390", size: NARROW, colorScheme: "light", locale: "en-GB" },
  { name: "dark-390", size: NARROW, colorScheme: "dark", locale: "en-GB" },
];

// The root has a limit of its own.
t.setTimeout(TIME_LIMIT_MS);
t.test("pictures", { timeout: TIME_LIMIT_MS }, async (t) => {
  const [folder] = process.argv.slice(2);
  const chromium = findBrowser();
  if (folder === undefined) return t.fail("name a folder: npm run screenshots -- folder");
  if (chromium === null) return t.fail("there is no Chromium");
  // A place where the held clock says four in the afternoon.
  process.env.TZ = ZONE;
  const into = resolve(folder);
  mkdirSync(into, { recursive: true });
  const day = await startTwoWeeks(t);
  await startRunningCalls(t, day);
  const fresh = await startUnderTest(t, null, { clock: day.clock });
  const ports = await Promise.all([day, fresh].map(({ paths }) => openDashboard(paths.socket)));
  const names = ports.map(({ url }) => new URL(url)).map(({ host, port }) => [host, Number(port)]);
  const browser = await startBrowser(t, chromium, Object.fromEntries(names));
  const picture = (name: string) => join(into, `${name}.png`);

  for (const look of LOOKS) {
    const page = await enter(browser, day, look);
    for (const name of PAGES) await take(page, name, picture(`${name}-${look.name}`));
    await page.context().close();
  }
  for (const look of LOOKS) {
    const chinese = await enter(browser, day, { ...look, locale: "zh-CN" });
    if (!(await hasChinese(chinese))) t.comment("no font has Chinese: apt install fonts-noto-cjk");
    for (const name of PAGES) await take(chinese, name, picture(`${name}-zh-${look.name}`));
    await chinese.context().close();
  }
  await takeForReadme(browser, day, picture);
  await takeEmpty(browser, fresh, day, picture);
  await takeOpened(browser, day, picture);
  await takeTrouble(browser, day, picture);
  t.pass(into);
});

/** The pictures in shots/, which pngquant made smaller. */
async function takeForReadme(browser: Browser, day: MirrorJourney, picture: Name) {
  const [light, dark] = [PLAIN, { ...PLAIN, colorScheme: "dark" as const }];
  const size = { width: 1280, height: 1000 };
  const overview = await enter(browser, day, { ...light, size });
  await overview.waitForTimeout(SETTLED_MS);
  await overview.screenshot({ path: picture("readme-overview") });
  const usage = await enter(browser, day, { ...dark, size });
  await usage.goto(`${new URL(usage.url()).origin}/#/usage?by=model`);
  await usage.waitForTimeout(SETTLED_MS);
  await usage.screenshot({ path: picture("readme-usage") });
}

/** Nothing happened yet, and there is no console. */
async function takeEmpty(browser: Browser, fresh: DaemonUnderTest, day: MirrorJourney, picture: Name) {
  const page = await enter(browser, { ...day, paths: fresh.paths }, PLAIN);
  for (const name of PAGES) await take(page, name, picture(`empty-${name}`));
}

/** What a click opens. */
async function takeOpened(browser: Browser, day: MirrorJourney, picture: Name) {
  for (const look of LOOKS) {
    const page = await enter(browser, day, look);
    await take(page, "usage?by=model", picture(`models-${look.name}`));
    await page.locator(".records tbody a").nth(9).click();
    await page.waitForTimeout(SETTLED_MS);
    await page.screenshot({ path: picture(`record-${look.name}`) });
    await take(page, "tools?tool=codex", picture(`tool-${look.name}`));
    await page.locator("summary").last().click();
    await page.getByRole("button", { name: "change its settings" }).click();
    await page.waitForTimeout(SETTLED_MS);
    await page.screenshot({ path: picture(`form-${look.name}`) });
    await page.context().close();
  }
}

/** A mistake in config.yaml, a page without a session, and a daemon that is gone: the last, because it stays so. */
async function takeTrouble(browser: Browser, day: MirrorJourney, picture: Name) {
  const page = await enter(browser, day, PLAIN);
  await day.save(`${day.config()}usage: { keep: 400 days }\nlimitz: 3\n`);
  await day.daemon.reload();
  // What is told live is kept for a while by a clock that stands still here.
  day.clock.pass(5000);
  await page.locator(".card pre").first().waitFor();
  await take(page, "overview", picture("trouble-config"));
  const stranger = await (await browser.newContext({ viewport: NARROW })).newPage();
  await stranger.goto(`${new URL(page.url()).origin}/`);
  await stranger.waitForTimeout(SETTLED_MS);
  await stranger.screenshot({ path: picture("trouble-session") });
  await day.daemon.stop(0);
  await page.locator(".notice").waitFor();
  await page.screenshot({ path: picture("trouble-gone"), fullPage: true });
}

type Name = (name: string) => string;

async function enter(browser: Browser, day: MirrorJourney, look: Look): Promise<Page> {
  const { size: viewport, colorScheme, locale } = look;
  const { url, code } = await openDashboard(day.paths.socket);
  const context = await browser.newContext({ viewport, colorScheme, locale, timezoneId: ZONE });
  const page = await context.newPage();
  await page.clock.setSystemTime(day.clock.now());
  await page.goto(`${url}#code=${code}`);
  await page.locator("main h1").waitFor();
  return page;
}

async function take(page: Page, name: string, path: string): Promise<void> {
  await page.goto(`${new URL(page.url()).origin}/#/${name}`);
  await page.waitForTimeout(SETTLED_MS);
  await page
    .locator(".empty", { hasText: /loading…|加载中/ })
    .first()
    .waitFor({ state: "detached" });
  await page.screenshot({ path, fullPage: true });
}

/** A font without a character draws the same box for all of them. */
function hasChinese(page: Page): Promise<boolean> {
  return page.evaluate<boolean>(`
    const draw = (text) => {
      const canvas = document.createElement("canvas");
      canvas.getContext("2d").fillText(text, 0, 20);
      return canvas.toDataURL();
    };
    draw("\u5bc6") !== draw("\u94a5");
  `);
}

/*
 * The data: two weeks of work with five tools, as the usage log and the console have them. What limits, comparison and
 * refusals make of it is the daemon's own work.
 */

const TOOLS: Readonly<Record<string, string>> = {
  "claude-code":
    "group: coding, model: claude-sonnet-4-5, expires: 2027-03-31, limits: { requests: 60/minute, spend: [$4/day, $60/month], concurrent: 4 }",
  codex: "group: coding, model: gpt-5.1, quota: $30, limits: { tokens: 20M/day, spend: $1.40/day }",
  opencode: "group: light, limits: { requests: 500/day }",
  translate: "limits: { spend: $2/day }",
  chat: "group: light, enabled: false",
};

const MULTIPLIERS: Readonly<Record<string, number>> = { coding: 1.5, light: 0.8 };

const GATEWAY_LINES = [
  "groups:",
  `  coding: { multiplier: ${MULTIPLIERS.coding}, models: ["claude-*", "gpt-5*"] }`,
  `  light: { multiplier: ${MULTIPLIERS.light} }`,
];

const MORE_LINES = [
  "dashboard: { listen: localhost:0 }",
  "prices:",
  "  claude-sonnet-4-5: { input: 3, output: 15 }",
  "  claude-opus-4-5: { input: 5, output: 25 }",
  "  gpt-5.1: { input: 1.25, output: 10 }",
  "  gpt-5.1-mini: { input: 0.25, output: 2 }",
  "  gemini-3-pro: { input: 2, output: 12 }",
];

/** A daemon with two weeks of records, and a console that has three requests more. */
async function startTwoWeeks(t: Test): Promise<MirrorJourney> {
  const clock = heldClock();
  const console = await startConsole(t, "sub2api", { now: clock.now, limits: false, balance: 212.4 });
  const { callers } = configFor(console, { tools: { ...TOOLS, scripts: "" } });
  const records = twoWeeks(clock.now(), callers);
  const midnight = new Date(clock.now()).setHours(0, 0, 0, 0);
  const ofScripts = records.filter(({ tool, started_at }) => tool === "scripts" && started_at >= midnight);
  // So low that the next requests are refused.
  const scripts = `limits: { requests: [30/minute, ${Math.max(1, ofScripts.length)}/day], concurrent: 1 }`;
  const options = {
    tools: { ...TOOLS, scripts },
    gateway: GATEWAY_LINES,
    more: MORE_LINES,
    callers,
    home: await newHome(t),
  };
  for (const { name, key } of Object.values(callers)) {
    const { group, multiplier } = groupOf(name);
    // The gateway refuses translate's key: somebody disabled it in the console.
    const disabled = name === "translate";
    console.addKey({ name, key, multiplier, disabled, ...(group === null ? {} : { group }) });
  }
  console.addKey({ name: "old laptop", key: `sk-${"0".repeat(44)}77f0`, quota: 20 });

  // The daemon compares only what the console has from after the daemon's first start.
  clock.pass(-15 * DAY);
  const before = await startBeside(t, console, clock, options);
  // A key is held from the first sync on.
  await before.sync();
  await before.daemon.stop(0);
  clock.pass(15 * DAY);
  for (const made of records) bill(console, made, callers[made.tool ?? ""]?.key ?? "");
  // The limits count a request only if it was opened.
  const lines = records.flatMap((made) => [{ ...made, end: null, ended_at: null }, made]);
  writeJournal(before.paths.usage, lines);

  const day = await startBeside(t, console, clock, options);
  await makeRefusals(day);
  for (const hoursAgo of [5.2, 5.1, 3.4])
    console.bill({
      key: day.caller("claude-code").key,
      model: "claude-opus-4-5",
      stream: true,
      input: 18_400,
      output: 3120,
      endpoint: "/v1/messages",
      dollars: 0.41,
      at: clock.now() - hoursAgo * HOUR,
      ip: "203.0.113.58",
      duration: 21_000,
    });
  await day.sync();
  return day;
}

function groupOf(tool: string): { readonly group: string | null; readonly multiplier: number } {
  const group = /group: (\w+)/.exec(TOOLS[tool] ?? "")?.[1] ?? null;
  return { group, multiplier: MULTIPLIERS[group ?? ""] ?? 1 };
}

function twoWeeks(now: number, callers: Readonly<Record<string, Caller>>): UsageRecord[] {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  return [...plausible(7000, midnight - 13 * DAY, 14, 2)]
    .filter(({ started_at }) => started_at < now - 2 * MINUTE)
    .filter(({ end, model }) => end !== "refused" && model !== "my-model")
    .map((made) => {
      const tool = made.tool ?? "";
      const { group, multiplier } = groupOf(tool);
      const cost = made.list_microdollars === null ? null : Math.round(made.list_microdollars * multiplier);
      return {
        ...made,
        group,
        multiplier,
        key: fingerprint(callers[tool]?.key ?? ""),
        endpoint: "/v1/chat/completions",
        cost_microdollars: cost,
        admitted_at: made.started_at,
        counts: true,
        counted_tokens: (made.input_tokens ?? 0) + (made.cache_read_tokens ?? 0) + (made.output_tokens ?? 0),
        counted_microdollars: cost ?? 0,
        gateway_ids: { "x-client-request-id": `7d1f-${made.id}` },
      };
    });
}

/** The console's row for a record. Some rows have more tokens than the record, and some are missing. */
function bill(console: ConsoleDouble, made: UsageRecord, key: string): void {
  const number = Number(made.id.slice(-16));
  if (made.end === "gateway-failed" || number % 311 === 0) return;
  const dollars = (made.cost_microdollars ?? 9000) / 1_000_000;
  const endedAt = made.ended_at ?? made.started_at;
  console.bill({
    key,
    model: made.model ?? "",
    stream: true,
    input: made.input_tokens ?? 1500,
    cacheRead: made.cache_read_tokens ?? 0,
    cacheWrite: made.cache_write_tokens ?? 0,
    output: (made.output_tokens ?? 300) + (number % 173 === 0 ? 640 : 0),
    dollars,
    listDollars: dollars / (made.multiplier ?? 1),
    at: endedAt + 400,
    requestId: made.gateway_ids["x-client-request-id"] ?? "",
    endpoint: made.endpoint,
    duration: endedAt - made.started_at,
  });
}

/** Requests of the last minutes that the daemon refuses. */
async function makeRefusals(day: MirrorJourney): Promise<void> {
  const ask = (tool: string, model: string, ago: number) => {
    day.clock.pass(ago);
    return day.ask({}, { tool, model, stream: true });
  };
  await ask("translate", "gpt-5.1-mini", 0);
  await ask("chat", "gpt-5.1", 7000);
  await ask("codex", "gemini-3-pro", 21_000);
  for (let left = 6; left > 0; left -= 1) await ask("scripts", "gpt-5.1-mini", 4100);
}

/** Calls that run while the pictures are taken. */
async function startRunningCalls(t: Test, day: MirrorJourney): Promise<void> {
  const stop = new AbortController();
  t.teardown(() => stop.abort());
  const calls = [
    ["claude-code", "claude-opus-4-5", "/v1/messages", "hang-in-body", 1240, 31_000],
    ["claude-code", "claude-sonnet-4-5", "/v1/messages", "hang-in-body", 386, 12_000],
    ["opencode", "gemini-3-pro", "/v1/chat/completions", "hang-before-headers", 0, 4000],
  ] as const;
  for (const [tool, model, path, how, pieces, ago] of calls) {
    const reached = day.console.reached();
    // With a clock that stands still the first byte would have taken no time.
    const ticking = setInterval(() => day.clock.pass(70), 1);
    const answer = fetch(`${day.url}${path}`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${day.caller(tool).token}`,
        "content-type": "application/json",
        [`x-test-${how}`]: "1",
        "x-test-pieces": String(pieces),
      },
      body: JSON.stringify({ model, stream: true, messages: [] }),
      signal: stop.signal,
    });
    if (how === "hang-in-body") await (await answer).body?.getReader().read();
    // It has no answer yet when the pictures are done.
    else answer.catch(() => {});
    await until("the gateway has the call", () => day.console.reached() > reached);
    clearInterval(ticking);
    day.clock.pass(ago);
  }
}
