import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import type { Test } from "tap";
import { type DashboardSetup, MARKUP, SPELLED, STOLEN } from "../doubles/dashboard-setup.ts";
import { LONG } from "../doubles/effort.ts";
import { until } from "../doubles/until.ts";
import { type Watch, watchPages } from "../doubles/watched-page.ts";
import { live, PAGES, show, WIDE } from "./browser-visit.ts";

/* Hostile texts, accessibility, lost sessions and restarts. */

const NARROW = { width: 390, height: 844 };

export async function staysText(t: Test, scene: DashboardSetup, page: Page): Promise<void> {
  const name = `  "${MARKUP.replaceAll('"', "'")}": { gateway: main, key: k }`;
  await scene.under().save(scene.config.replace("tools:", `tools:\n${name}`));
  await show(page, "overview");
  await page.getByText("config.yaml has problems").waitFor();
  t.ok((await page.locator(".card pre, .card code").allInnerTexts()).join().includes("^"), "with the caret");
  const wanted = {
    overview: [`no ${MARKUP}`, "ab\\u{202e}dc", "<img src=x onerror='window.ran=1'>"],
    usage: [MARKUP, SPELLED],
    tools: [],
    bill: [STOLEN, `codex ${MARKUP}`],
    events: [],
  };
  for (const each of PAGES) {
    await show(page, each);
    const body = page.locator("body");
    for (const part of wanted[each])
      await until(`${part} is on ${each}`, async () => (await body.innerText()).includes(part));
    const text = await body.innerText();
    t.notMatch(text, /(?![\t\n])[\p{Cc}\p{Bidi_Control}]/u, `nothing turns the words of ${each} around`);
    t.equal(await page.locator("body :is(img, script, iframe, object, embed, base, form)").count(), 0);
    t.equal(await page.evaluate("window.ran"), undefined);
  }
  await page.goto(
    `${scene.origin}/#/tools?tool=${encodeURIComponent(MARKUP)}&q=${encodeURIComponent(MARKUP)}`,
  );
  await page.getByText(`There is no tool ${MARKUP}`).waitFor();
  t.equal(await page.evaluate("window.ran"), undefined);
  await scene.under().save(scene.config);
  await page.getByText("config.yaml has problems").waitFor({ state: "detached" });
}

export const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Of any impact. `colours`: only the rules that depend on the theme. */
export async function faultsOf(page: Page, colours = false): Promise<string[]> {
  const only = colours ? ", runOnly: { type: 'rule', values: ['color-contrast', 'link-in-text-block'] }" : "";
  // What follows a size or a theme does so with the next frame.
  const { violations }: { violations: { id: string; impact: string; nodes: { html: string }[] }[] } =
    await page.evaluate(`(async () => {
      for (let frame = 0; frame < 2; frame += 1)
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
      return axe.run(document, { resultTypes: ['violations']${only} });
    })()`);
  return violations.flatMap(({ id, impact, nodes }) => nodes.map(({ html }) => `${impact} ${id} ${html}`));
}

export async function isAccessible(t: Test, scene: DashboardSetup, watch: Watch): Promise<void> {
  if (!LONG) return isAccessibleAtFirst(t, scene, watch);
  await Promise.all(["en-US", "zh-CN"].map((locale) => isAccessibleIn(t, scene, watch, locale)));
}

/** The first page in one language, width and theme. */
async function isAccessibleAtFirst(t: Test, scene: DashboardSetup, watch: Watch): Promise<void> {
  const page = await watch.page({ viewport: WIDE });
  await page.goto(await scene.address());
  await live(page);
  await show(page, "overview");
  await page.evaluate(AXE);
  t.strictSame(await faultsOf(page), []);
  await page.context().close();
}

/** English wide and light and narrow and dark, Chinese narrow and light; every combination with KEYBEARER_EVERY_LOOK=1. */
function schemesFor(locale: string, size: typeof WIDE): readonly ("light" | "dark")[] {
  if (process.env.KEYBEARER_EVERY_LOOK === "1") return ["light", "dark"];
  if (locale === "en-US") return [size === WIDE ? "light" : "dark"];
  return size === WIDE ? [] : ["light"];
}

async function isAccessibleIn(t: Test, scene: DashboardSetup, watch: Watch, locale: string): Promise<void> {
  const page = await watch.page({ viewport: WIDE, locale });
  await page.goto(await scene.address());
  await live(page);
  t.equal(await page.evaluate("document.documentElement.lang"), locale === "en-US" ? "en" : "zh-CN");
  await page.evaluate(AXE);
  for (const name of PAGES) {
    await page.setViewportSize(WIDE);
    await show(page, name);
    for (const size of [WIDE, NARROW]) {
      await page.setViewportSize(size);
      // A chart follows the width of its place a moment later.
      await until(`${name}, ${locale}, does not scroll sideways at ${size.width}`, () =>
        page.evaluate("document.documentElement.scrollWidth <= innerWidth"),
      );
      for (const colorScheme of schemesFor(locale, size)) {
        await page.emulateMedia({ colorScheme });
        const faults = await faultsOf(page, colorScheme === "dark");
        t.strictSame(faults, [], `${name}, ${locale}, ${size.width}, ${colorScheme}`);
      }
    }
  }
  await page.setViewportSize(WIDE);
  await show(page, "usage");
  await page.locator(".records tbody tr a").first().click();
  await page.locator("dialog dl").first().waitFor();
  t.strictSame(await faultsOf(page), [], `a record, ${locale}`);
  await page.keyboard.press("Escape");
  await page.locator("dialog").waitFor({ state: "detached" });
  await show(page, "tools");
  await page.getByRole("rowheader").getByRole("link").first().click();
  await page.locator(".panel dl").first().waitFor();
  await page.locator("details.fold summary").last().click();
  await page.locator("details.fold select").first().waitFor();
  for (const size of [WIDE, NARROW]) {
    await page.setViewportSize(size);
    t.strictSame(await faultsOf(page), [], `one tool, ${locale}, ${size.width}`);
    await until(`${size.width} is wide enough`, () =>
      page.evaluate("document.documentElement.scrollWidth <= innerWidth"),
    );
  }
  await page.locator("main button").first().click();
  await page.locator("dialog form").waitFor();
  t.strictSame(await faultsOf(page), [], `a form, ${locale}`);
  await page.context().close();
}

/** Chromium's own lines about answers that are as they should be. */
const EXPECTED = /^Failed to load resource: (?:net::ERR_|the server responded with a status of 401)/;

export async function survives(t: Test, scene: DashboardSetup, watch: Watch, page: Page): Promise<void> {
  const before = watch.complaints.length;
  await show(page, "usage");
  await page.evaluate("window.stays = true");
  await scene.stop();
  const gone = page.locator(".notice[data-kind=gone]");
  await gone.waitFor();
  t.match(await gone.innerText(), /keybearer does not answer[\s\S]*keybearer open[\s\S]*keybearer run/);
  t.ok((await page.locator(".records tbody tr").count()) > 0, "what was there stays there");
  await page.evaluate(AXE);
  t.strictSame(await faultsOf(page), []);
  await scene.restart();
  await gone.waitFor({ state: "detached" });
  await live(page);
  await (await scene.chat("codex", "after the restart")).text();
  await page.locator(".records tbody tr", { hasText: "after the restart" }).waitFor();
  t.equal(await page.evaluate("window.stays"), true, "it went on by itself");

  // A port that is given up ends every session.
  await scene.under().save(scene.config.replace("when: always", "when: never"));
  await gone.waitFor();
  await scene.under().save(scene.config);
  await page.getByRole("heading", { name: "The session has ended" }).waitFor();
  t.equal(await page.locator(".notice code").innerText(), "keybearer open");
  t.strictSame(await faultsOf(page), []);
  await page.goto(await scene.address());
  await live(page);
  await show(page, "usage");
  await page.locator(".records tbody tr", { hasText: "priced" }).first().waitFor();
  t.equal(await page.evaluate("window.stays"), true, "it went on in the same page");
  t.strictSame(
    watch.complaints.slice(before).filter((line) => !EXPECTED.test(line)),
    [],
  );
}

export async function needsSession(
  t: Test,
  scene: DashboardSetup,
  watch: Watch,
  used: string,
): Promise<void> {
  const before = watch.complaints.length;
  const page = await watch.page({ viewport: NARROW });
  for (const [address, title] of [
    [scene.origin, "This page needs a session"],
    [used, "The code is no longer valid"],
  ] as const) {
    await page.goto(address);
    await page.getByRole("heading", { name: title }).waitFor();
    t.equal(await page.locator("main code").innerText(), "keybearer open");
    t.notMatch(await page.content(), /codex|writer|priced/);
  }
  t.notMatch(page.url(), /code=/, "not even one that is worthless stays in the address");
  const statuses =
    await page.evaluate(`Promise.all(["now", "events", "usage", "records", "csv", "tools", "tools/codex", "mirror", "bill?month=2026-10"]
    .map((name) => fetch("/api/" + name).then(({ status }) => status)))`);
  t.strictSame(statuses, Array(9).fill(401), "without a token there is nothing");
  await until("all is said", () => watch.complaints.length >= before + 10);
  t.strictSame(
    watch.complaints.slice(before).filter((line) => !EXPECTED.test(line)),
    [],
  );
  await page.context().close();
}

/** Were a text taken for markup after all: nothing of it would run, and nothing would be fetched or sent. */
export async function policyHolds(t: Test, scene: DashboardSetup): Promise<void> {
  const watch = watchPages(scene.browser);
  const page = await watch.page();
  await page.goto(scene.origin);
  await page.evaluate(`
    document.body.append(Object.assign(document.createElement("script"), { textContent: "window.ran = 1" }));
    document.body.insertAdjacentHTML("beforeend", "<p style='color: red' onclick='window.ran = 1'>x</p>");
    document.body.insertAdjacentHTML("beforeend", "<img src='http://evil.test/page'>");
    document.querySelector("p[onclick]").click();
    fetch("http://evil.test/page").catch(() => {});`);
  const stopped = ["script-src-elem", "script-src-attr", "style-src-attr", "img-src", "connect-src"];
  await until(`all of ${stopped} is stopped`, () =>
    stopped.every((name) => watch.violations.some((line) => line.startsWith(`${name} `))),
  );
  t.equal(await page.evaluate("window.ran"), undefined);
  await until("a page that does such things is heard", () => watch.complaints.length >= stopped.length);
  await page.context().close();
}
