import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";
import type { Test } from "tap";

const PLACES = [
  // The same browser without a window. It starts in half the time.
  "/usr/bin/chromium-headless-shell",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** The browser of this machine, or null. Tests drive it with playwright-core, which brings none. */
export function findBrowser(): string | null {
  return PLACES.find((path) => existsSync(path)) ?? null;
}

/** A browser with a profile of its own that reaches only this machine. `names` maps host:port to a port here. */
export async function startBrowser(
  t: Test,
  executablePath: string,
  names: Readonly<Record<string, number>>,
): Promise<Browser> {
  const rules = Object.entries(names).map(([name, port]) => `MAP ${name} 127.0.0.1:${port}`);
  const browser = await chromium.launch({
    executablePath,
    headless: true,
    // The environment may name a proxy, which must not get what a test sends.
    env: { HOME: process.env.HOME ?? "/", PATH: process.env.PATH ?? "" },
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      `--host-resolver-rules=${[...rules, "MAP * ^NOTFOUND"].join(", ")}`,
    ],
  });
  t.teardown(() => browser.close());
  return browser;
}
