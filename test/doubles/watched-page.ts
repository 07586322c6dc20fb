import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { HANG_MS } from "./until.ts";

/** Records what the pages of a browser log and request, and what their policy blocks. */
export interface Watch {
  /** Warnings and errors of the browser console, and uncaught errors. */
  readonly complaints: readonly string[];
  /** What the Content-Security-Policy blocked. */
  readonly violations: readonly string[];
  /** Every requested address. */
  readonly requests: readonly string[];
  /** A page in a browser context of its own. */
  page(options?: BrowserContextOptions): Promise<Page>;
}

export function watchPages(browser: Browser): Watch {
  const complaints: string[] = [];
  const violations: string[] = [];
  const requests: string[] = [];
  return {
    complaints,
    violations,
    requests,
    async page(options = {}) {
      const context = await browser.newContext({ locale: "en-US", reducedMotion: "reduce", ...options });
      await context.exposeFunction("tellViolation", (what: string) => void violations.push(what));
      await context.addInitScript(`document.addEventListener("securitypolicyviolation", (event) =>
        tellViolation(event.violatedDirective + " " + event.blockedURI + " " + event.sample));`);
      context.on("request", (request) => void requests.push(request.url()));
      context.on("console", (message) => {
        if (["error", "warning"].includes(message.type())) complaints.push(message.text());
      });
      context.on("weberror", (error) => void complaints.push(String(error.error().stack)));
      context.setDefaultTimeout(HANG_MS);
      return context.newPage();
    },
  };
}
