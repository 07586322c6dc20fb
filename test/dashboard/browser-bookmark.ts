import type { Page } from "playwright-core";
import type { Test } from "tap";
import type { BrowsersAnswer } from "../../src/control/browsers.ts";
import type { DashboardSetup } from "../doubles/dashboard-setup.ts";
import { controlOf } from "../doubles/mirror-journey.ts";
import type { Watch } from "../doubles/watched-page.ts";
import { AXE, faultsOf } from "./browser-hardships.ts";
import { digitsFor, live, WIDE } from "./browser-visit.ts";

/** What a script in the page gets of the key that the browser keeps. */
const STEAL = `(async () => {
  const opening = indexedDB.open("keybearer", 1);
  await new Promise((done) => { opening.onsuccess = done; });
  const asking = opening.result.transaction("keys").objectStore("keys").get("browser");
  await new Promise((done) => { asking.onsuccess = done; });
  const { privateKey } = asking.result;
  opening.result.close();
  const formats = ["jwk", "pkcs8", "raw"];
  const read = await Promise.all(formats.map((format) =>
    crypto.subtle.exportKey(format, privateKey).then(() => format, () => null)));
  return JSON.stringify({ type: privateKey.type, extractable: privateKey.extractable, read });
})()`;

/** Remembers the browser, comes back without a session, and is refused once that is revoked. */
export async function opensByBookmark(t: Test, scene: DashboardSetup, watch: Watch): Promise<void> {
  const { socket } = scene.under().paths;
  const page = await watch.page({ viewport: WIDE });
  await page.goto(await scene.address());
  await live(page);
  await remember(t, scene, page);
  t.match(await controlOf<BrowsersAnswer>(socket, "GET", "/browsers"), {
    browsers: [{ name: "laptop", origin: scene.origin }],
  });
  t.same(JSON.parse(await page.evaluate(STEAL)), {
    type: "private",
    extractable: false,
    read: [null, null, null],
  });

  // A session is its tab's alone.
  const bookmark = `${scene.origin}/#/usage`;
  const back = await page.context().newPage();
  await page.close();
  await back.goto(bookmark);
  await live(back);
  t.equal(back.url(), bookmark, "a bookmark leads to its page");
  await back.locator(".usage-name").first().waitFor();
  await back.getByRole("button", { name: "bookmark" }).click();
  await back.getByText("This browser is remembered as laptop: bookmark this page.").waitFor();
  await back.getByRole("dialog").getByRole("button", { name: "close" }).click();
  await back.evaluate(`sessionStorage.setItem("keybearer.session", "kd_of-yesterday")`);
  await back.reload();
  await live(back);
  t.pass("a tab with a session that is over gets another one");

  await controlOf(socket, "POST", "/revokebrowser/laptop", {});
  await back.getByRole("heading", { name: "The session has ended" }).waitFor();
  await back.goto("about:blank");
  await back.goto(bookmark);
  const notice = back.locator(".notice", { hasText: "It says:" });
  await notice.waitFor();
  t.match(await notice.innerText(), /This page needs a session[\s\S]*not remembered, or not any more/);
  t.equal(await back.locator("main code").first().innerText(), "keybearer open");
  t.equal(await back.evaluate("sessionStorage.length"), 0);
  await back.context().close();
}

/** The connection breaks once the action is done. */
const LOSE_ANSWER = `{
  const real = window.fetch;
  window.fetch = async (path, init) => {
    const answer = await real(path, init);
    if (path === "/api/run") throw new TypeError("Failed to fetch");
    return answer;
  };
}`;

/** keybearer remembers the browser, and the page never learns of it. */
export async function opensAfterLostAnswer(t: Test, scene: DashboardSetup, watch: Watch): Promise<void> {
  const page = await watch.page({ viewport: WIDE });
  await page.goto(await scene.address());
  await live(page);
  await page.evaluate(LOSE_ANSWER);
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "bookmark" }).click();
  await dialog.getByRole("button", { name: "continue" }).click();
  await dialog.getByText("+ browser chrome").waitFor();
  await dialog.getByLabel("The six digits").fill(await digitsFor(scene));
  await dialog.getByRole("button", { name: "do it" }).click();
  await dialog.getByRole("alert").waitFor();
  await dialog.getByRole("button", { name: "close" }).click();
  await page.getByRole("button", { name: "bookmark" }).click();
  await dialog.getByText("This browser is remembered as chrome: bookmark this page.").waitFor();

  const back = await page.context().newPage();
  await page.close();
  await back.goto(`${scene.origin}/#/usage`);
  await live(back);
  t.match(JSON.parse(await back.evaluate(STEAL)), { type: "private" }, "its key is in use now");
  await back.context().close();
}

/** As Firefox does for a site that may store nothing. */
const FORBID_STORAGE = `Object.defineProperty(window, "indexedDB", {
  get() { throw new DOMException("The operation is insecure.", "SecurityError"); },
})`;

/** The list is also for who wants to revoke another browser. */
export async function revokesWithoutStorage(t: Test, scene: DashboardSetup, watch: Watch): Promise<void> {
  const page = await watch.page({ viewport: WIDE });
  await page.addInitScript(FORBID_STORAGE);
  await page.goto(await scene.address());
  await live(page);
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "bookmark" }).click();
  await dialog.getByRole("button", { name: "continue" }).click();
  await dialog.getByRole("alert").getByText("The operation is insecure.").waitFor();
  await dialog.getByRole("button", { name: "revoke chrome" }).click();
  await dialog.getByRole("button", { name: "do it" }).click();
  await dialog.getByText("Done.").waitFor();
  t.match(await controlOf(scene.under().paths.socket, "GET", "/browsers"), { browsers: [] });
  await page.context().close();
}

async function remember(t: Test, scene: DashboardSetup, page: Page): Promise<void> {
  await page.getByRole("button", { name: "bookmark" }).click();
  const dialog = page.getByRole("dialog");
  const name = dialog.getByLabel("name");
  t.equal(await name.inputValue(), "chrome", "a name is proposed");
  await name.fill("my laptop");
  await dialog.getByRole("button", { name: "continue" }).click();
  await dialog.getByText("Use up to 40 letters").waitFor();
  await name.fill("laptop");
  await page.evaluate(AXE);
  t.strictSame(await faultsOf(page), []);
  await dialog.getByRole("button", { name: "continue" }).click();
  await dialog.getByText("+ browser laptop").waitFor();
  await dialog.getByLabel("The six digits").fill(await digitsFor(scene));
  await dialog.getByRole("button", { name: "do it" }).click();
  await dialog.getByText("Done.").waitFor();
  await dialog.getByRole("button", { name: "close" }).click();
}
