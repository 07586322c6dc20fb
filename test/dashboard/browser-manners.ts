import type { Locator, Page } from "playwright-core";
import type { Test } from "tap";
import type { DashboardSetup } from "../doubles/dashboard-setup.ts";
import { until } from "../doubles/until.ts";
import { type Hands, keyboardOf, MOUSE } from "./browser-hands.ts";
import { PAGES } from "./browser-visit.ts";

export async function presses(t: Test, page: Page): Promise<void> {
  await page.locator("main").focus();
  for (const [letter, hash] of [
    ["t", "#/tools"],
    ["e", "#/events"],
    ["u", "#/usage"],
  ] as const) {
    await page.keyboard.press("g");
    await page.keyboard.press(letter);
    await page.waitForURL((url) => url.hash.startsWith(hash));
  }
  await page.keyboard.press("?");
  const list = page.getByRole("dialog", { name: "Keys" });
  await list.waitFor();
  await page.keyboard.press("Escape");
  await list.waitFor({ state: "detached" });
  t.pass("each key did what the list says");
}

export async function choosesLook(t: Test, page: Page): Promise<void> {
  const scheme = () => page.evaluate("getComputedStyle(document.documentElement).colorScheme");
  t.equal(await scheme(), "light dark", "as the system");
  const reloaded = page.waitForEvent("load");
  await page.getByLabel("theme").selectOption("dark");
  await reloaded;
  t.equal(await scheme(), "dark");
  await page.reload();
  t.equal(await scheme(), "dark", "a reload keeps it");
  const again = page.waitForEvent("load");
  await page.getByLabel("theme").selectOption("auto");
  await again;
  t.equal(await scheme(), "light dark");
  await page.getByLabel("language").selectOption("zh-CN");
  await page.locator('html[lang="zh-CN"]').waitFor();
  await page.getByLabel("语言").selectOption("en");
  await page.locator('html[lang="en"]').waitFor();
}

export async function sorts(t: Test, scene: DashboardSetup, page: Page): Promise<void> {
  const names = async () => (await page.locator(".tool-list tbody th").allInnerTexts()).join(" ");
  const head = (name: string) => page.locator("thead th", { hasText: new RegExp(`^${name}$`) });
  const inOrder = (hands: Hands, column: string, order: string, wanted: string) =>
    t.test(`${column}, ${order}`, async (t) => {
      await hands.press(head(column).getByRole("button"));
      await page.locator(`th[aria-sort=${order}]`, { hasText: column }).waitFor();
      t.equal(await names(), wanted);
      t.equal(await page.locator("th:is([aria-sort=ascending], [aria-sort=descending])").count(), 1);
    });
  await page.goto(`${scene.origin}/#/tools`);
  await page.locator(".tool-list tbody tr").first().waitFor();
  t.equal(await names(), "codex writer broken", "as in config.yaml");
  await inOrder(MOUSE, "tool", "ascending", "broken codex writer");
  await inOrder(MOUSE, "tool", "descending", "writer codex broken");
  await inOrder(MOUSE, "gateway", "ascending", "broken codex writer");
  const keyboard = keyboardOf(page);
  await inOrder(keyboard, "gateway", "descending", "writer codex broken");
  t.match(page.url(), /sort=-gateway/, "which a bookmark keeps");
  // Whoever has no limit is last, in either order.
  await inOrder(keyboard, "limits", "ascending", "codex writer broken");
  t.match(await page.locator("button:focus").innerText(), /limits/, "the focus stays");
}

async function copiesWhatItShows(t: Test, page: Page, button: Locator): Promise<void> {
  // The command beside it, or the lines below it.
  const shown = await button.evaluate(
    ({ parentElement: place }) =>
      (place?.querySelector(":scope > code") ?? place?.nextElementSibling)?.textContent,
  );
  await button.click();
  await button.getByText("copied").waitFor();
  t.equal(await page.evaluate("navigator.clipboard.readText()"), shown);
}

export async function connects(t: Test, scene: DashboardSetup, page: Page): Promise<void> {
  const { origin } = new URL(scene.under().url.replace("127.0.0.1", "localhost"));
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin: scene.origin });
  await page.goto(`${scene.origin}/#/tools?tool=codex`);
  await page.getByText("connect a client").click();
  const panel = page.locator(".panel.fold");
  await panel.getByText("keybearer use codex --for codex --write").first().waitFor();
  t.equal(await panel.getByLabel("client").inputValue(), "codex", "its name says which");
  await panel.getByLabel("client").selectOption("claude-code");
  await panel.getByText("keybearer use codex --for claude-code --write").first().waitFor();
  t.match(await panel.locator("dl").innerText(), new RegExp(`ANTHROPIC_BASE_URL\\s+${origin}\\s`));
  const lines = (await panel.locator("pre").allInnerTexts()).join("\n");
  t.match(lines, `ANTHROPIC_BASE_URL`);
  t.match(lines, origin);
  for (const button of await panel.locator(".copy").all()) await copiesWhatItShows(t, page, button);
}

/** A command in a text, not in the lines of a file or of a gateway's answer, that has no button beside it. */
const NOT_COPIED = `(() => {
  const command = /\\b(?:keybearer (?:run|start|stop|logs|init|check|status|doctor|open|confirm|config|gateways|tools|use|adopt|trust|models|usage|mirror|sync|notify|service|metrics|keys|sessions) |curl )/;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node = walk.nextNode(); node !== null; node = walk.nextNode()) {
    const element = node.parentElement;
    const isCopied = element.matches("code") && element.parentElement.querySelector(":scope > .copy") !== null;
    if (command.test(node.data + " ") && !isCopied && element.closest("pre, .copy") === null) found.push(node.data);
  }
  return found;
})()`;

export async function copies(t: Test, scene: DashboardSetup, page: Page): Promise<void> {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin: scene.origin });
  let commands = 0;
  for (const hash of [...PAGES.map((name) => `#/${name}`), "#/tools?tool=codex", "#/tools?tool=broken"]) {
    await page.goto(`${scene.origin}/${hash}`);
    await page.locator("main h1").waitFor();
    await until("it is read", async () => (await page.getByText("loading…").count()) === 0);
    t.strictSame(await page.evaluate(NOT_COPIED), [], `each command of ${hash} can be copied`);
    for (const button of await page.locator("main .copy").all()) {
      await copiesWhatItShows(t, page, button);
      commands += 1;
    }
  }
  t.ok(commands > 3, `${commands} commands`);
  await page.getByRole("button", { name: "disable", exact: true }).click();
  const dialog = page.getByRole("dialog");
  await dialog.locator(".diff").waitFor();
  t.strictSame(await page.evaluate(NOT_COPIED), [], "and of a dialog");
  await copiesWhatItShows(t, page, dialog.locator(".copy").first());
  await page.keyboard.press("Escape");
}
