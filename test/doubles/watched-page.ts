import type { Browser, BrowserContextOptions, Page } from "playwright-core";

/** Everything that the pages of a browser said, asked for and were forbidden. */
export interface Watch {
  /** What stood in the consoles as a warning or an error, and what was thrown and not caught. */
  readonly complaints: readonly string[];
  /** What the Content-Security-Policy stopped. */
  readonly violations: readonly string[];
  /** Every address that was asked for. */
  readonly requests: readonly string[];
  /** In a context of its own, with no memory of another. */
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
      context.setDefaultTimeout(10_000);
      return context.newPage();
    },
  };
}
