import type { Page } from "playwright-core";
import type { Test } from "tap";
import type { DashboardSetup } from "../doubles/dashboard-setup.ts";
import { until } from "../doubles/until.ts";
import type { Watch } from "../doubles/watched-page.ts";
import { live, show, WIDE } from "./browser-visit.ts";

/** A page whose stream breaks, and one that is hidden. */

/** Every stream can be broken from here, as a network does it. */
const BREAKABLE = `{
  const fetched = fetch;
  window.fetch = (path, init = {}) => {
    if (path !== "/api/events") return fetched(path, init);
    const broken = new AbortController();
    window.breakStream = () => broken.abort(new Error("broken"));
    return fetched(path, { ...init, signal: AbortSignal.any([init.signal, broken.signal]) });
  };
}`;

export async function catchesUp(t: Test, scene: DashboardSetup, watch: Watch): Promise<void> {
  const page = await watch.page({ viewport: WIDE });
  await page.addInitScript(BREAKABLE);
  await page.goto(await scene.address());
  await live(page);
  await show(page, "usage");
  const rows = page.locator(".records tbody tr");
  await rows.first().waitFor();
  const before = await rows.count();
  const requests = () =>
    page.locator(".figures div", { hasText: "requests" }).locator("dd").first().innerText();
  const said = await requests();

  const words = "16 others are following already: end one of them, then try again";
  await page.route("**/api/events", (route) => route.fulfill({ status: 429, json: { error: words } }));
  await page.evaluate("window.breakStream()");
  const refused = page.locator(".notice[data-kind=refused]");
  await refused.waitFor();
  t.ok((await refused.innerText()).includes(words), "why, in the daemon's words");
  t.notMatch(
    await page.locator("main").innerText(),
    /keybearer run/,
    "it runs: the page does not say to start it",
  );
  t.equal(await rows.count(), before, "what was there stays there");
  await (await scene.chat("codex", "meanwhile")).text();
  await page.unroute("**/api/events");
  await live(page);
  await page.locator(".records tbody tr", { hasText: "meanwhile" }).waitFor();
  t.equal(await rows.count(), before + 1);
  await until("it is in the figures", async () => (await requests()) !== said);
  await page.context().close();
}

/** A minute passes in the blink of an eye. */
const HASTY = `{
  const later = setTimeout;
  window.setTimeout = (work, ms) => later(work, ms === 60000 ? 40 : ms);
}`;

export async function restsUnseen(t: Test, scene: DashboardSetup, watch: Watch): Promise<void> {
  const page = await watch.page({ viewport: WIDE });
  await page.addInitScript(HASTY);
  await page.goto(await scene.address());
  await live(page);
  await show(page, "usage");
  await page.locator(".records tbody tr").first().waitFor();
  const letGo = page.waitForEvent("requestfailed", (request) => request.url().endsWith("/api/events"));
  await setVisibility(page, "hidden");
  await letGo;
  let asked = 0;
  page.on("request", () => {
    asked += 1;
  });
  await (await scene.chat("codex", "unseen")).text();
  // Longer than a page that follows needs to notice.
  await page.evaluate("new Promise((done) => setTimeout(done, 3000))");
  t.equal(asked, 0, "a hidden page asks for nothing");
  await setVisibility(page, "visible");
  await page.locator(".records tbody tr", { hasText: "unseen" }).waitFor();
  await page.context().close();
}

async function setVisibility(page: Page, state: "hidden" | "visible"): Promise<void> {
  await page.evaluate(`
    Object.defineProperty(document, "visibilityState", { value: "${state}", configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));`);
}
