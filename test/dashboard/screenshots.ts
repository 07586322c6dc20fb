import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Browser, Page } from "playwright-core";
import t from "tap";
import { findBrowser, startBrowser } from "../doubles/browser.ts";
import { type DaemonUnderTest, startUnderTest } from "../doubles/daemon-under-test.ts";
import { type DashboardDay, startDashboardDay } from "../doubles/dashboard-day.ts";
import { openDashboard } from "../doubles/dashboard-visit.ts";

/*
 * Pictures of the dashboard, for looking at: `npm run screenshots -- folder`. The built page (npm run build), a daemon
 * with two weeks behind it, and the system's Chromium.
 */

const ZONE = "Asia/Shanghai";
const WIDE = { width: 1280, height: 860 };
const NARROW = { width: 390, height: 844 };
/** A picture is for looking at: nobody fails because it was taken too early. */
const SETTLED_MS = 500;
const TIME_LIMIT_MS = 240_000;
const PAGES = ["now", "usage", "tools", "mirror"] as const;

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
  const day = await startDashboardDay(t);
  await day.begin();
  const fresh = await startUnderTest(t, null, { clock: day.clock });
  const ports = await Promise.all([day, fresh].map(({ places }) => openDashboard(places.socket)));
  const names = ports.map(({ url }) => new URL(url)).map(({ host, port }) => [host, Number(port)]);
  const browser = await startBrowser(t, chromium, Object.fromEntries(names));
  const picture = (name: string) => join(into, `${name}.png`);

  for (const look of LOOKS) {
    const page = await enter(browser, day, look);
    for (const name of PAGES) await take(page, name, picture(`${name}-${look.name}`));
    await page.context().close();
  }
  const chinese = await enter(browser, day, { ...PLAIN, locale: "zh-CN" });
  if (!(await hasChinese(chinese))) t.comment("no font has Chinese: apt install fonts-noto-cjk");
  for (const name of ["now", "mirror"]) await take(chinese, name, picture(`${name}-zh-1280`));
  await takeForReadme(browser, day, picture);
  await takeEmpty(browser, fresh, day, picture);
  await takeOpened(browser, day, picture);
  await takeTrouble(browser, day, picture);
  t.pass(into);
});

/** Those that lie in shots/, made small by pngquant. */
async function takeForReadme(browser: Browser, day: DashboardDay, picture: Name) {
  const [light, dark] = [PLAIN, { ...PLAIN, colorScheme: "dark" as const }];
  const size = { width: 1280, height: 1000 };
  const now = await enter(browser, day, { ...light, size });
  await now.waitForTimeout(SETTLED_MS);
  await now.screenshot({ path: picture("readme-now") });
  const usage = await enter(browser, day, { ...dark, size });
  await usage.goto(`${new URL(usage.url()).origin}/#/usage?by=model`);
  await usage.waitForTimeout(SETTLED_MS);
  await usage.screenshot({ path: picture("readme-usage") });
}

/** Nothing happened yet, and there is no console. */
async function takeEmpty(browser: Browser, fresh: DaemonUnderTest, day: DashboardDay, picture: Name) {
  const page = await enter(browser, { ...day, places: fresh.places }, PLAIN);
  for (const name of PAGES) await take(page, name, picture(`empty-${name}`));
}

/** What a click opens. */
async function takeOpened(browser: Browser, day: DashboardDay, picture: Name) {
  for (const look of LOOKS) {
    const page = await enter(browser, day, look);
    await take(page, "usage?by=model", picture(`models-${look.name}`));
    await page.locator(".records tbody button").nth(9).click();
    await page.waitForTimeout(SETTLED_MS);
    await page.screenshot({ path: picture(`record-${look.name}`) });
    await page.goto(`${new URL(page.url()).origin}/#/tools`);
    await page.locator(".tool-actions button").first().click();
    await page.waitForTimeout(SETTLED_MS);
    await page.screenshot({ path: picture(`use-${look.name}`) });
    await page.context().close();
  }
}

/** A mistake in config.yaml, a page without a session, and a daemon that is gone: the last, because it stays so. */
async function takeTrouble(browser: Browser, day: DashboardDay, picture: Name) {
  const page = await enter(browser, day, PLAIN);
  await day.save(`${day.config()}usage: { keep: 400 days }\nlimitz: 3\n`);
  await day.daemon.reload();
  // What is told live is kept for a while by a clock that stands still here.
  day.clock.pass(5000);
  await page.locator(".banner pre").first().waitFor();
  await take(page, "now", picture("trouble-config"));
  const stranger = await (await browser.newContext({ viewport: NARROW })).newPage();
  await stranger.goto(`${new URL(page.url()).origin}/`);
  await stranger.waitForTimeout(SETTLED_MS);
  await stranger.screenshot({ path: picture("trouble-session") });
  await day.daemon.stop(0);
  await page.locator(".notice").waitFor();
  await page.screenshot({ path: picture("trouble-gone"), fullPage: true });
}

type Name = (name: string) => string;

async function enter(browser: Browser, day: DashboardDay, look: Look): Promise<Page> {
  const { size: viewport, colorScheme, locale } = look;
  const { url, code } = await openDashboard(day.places.socket);
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
