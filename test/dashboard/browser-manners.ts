import type { Page } from "playwright-core";
import type { Test } from "tap";

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
