import { readFileSync } from "node:fs";
import Anthropic, { APIError as AnthropicError } from "@anthropic-ai/sdk";
import OpenAI, { APIError } from "openai";
import type { Page } from "playwright-core";
import type { Test } from "tap";
import type { Digits, WaitingAction } from "../../src/control/confirmation.ts";
import { type DashboardSetup, STOLEN } from "../doubles/dashboard-setup.ts";
import { controlOf } from "../doubles/mirror-journey.ts";
import { until } from "../doubles/until.ts";

/** What a person does on the dashboard on an ordinary day. */

export const WIDE = { width: 1280, height: 900 };
export const PAGES = ["overview", "usage", "tools", "bill", "events"] as const;
export type PageName = (typeof PAGES)[number];

/** What stands on each page once its answers are there. */
const THERE: Readonly<Record<PageName, readonly string[]>> = {
  overview: [".refusals li, .refusals .empty"],
  usage: [".usage-name", ".records tbody tr"],
  tools: [".tool-list tbody tr"],
  bill: [".bill-keys tbody tr", ".bill-month .body"],
  events: [".events :is(li, .empty)"],
};

export async function show(page: Page, name: PageName): Promise<void> {
  await page.locator(`header nav a[href="#/${name}"]`).click();
  for (const part of THERE[name]) await page.locator(part).first().waitFor();
}

export const live = (page: Page) => page.locator(".top [data-state=live]").waitFor();

export function clientsOf({ tools, under }: DashboardSetup) {
  const base = `http://localhost:${under().daemon.port}`;
  return {
    writer: new OpenAI({ apiKey: tools.writer.token, baseURL: `${base}/v1`, maxRetries: 0 }),
    codex: new OpenAI({ apiKey: tools.codex.token, baseURL: `${base}/v1`, maxRetries: 0 }),
    claude: new Anthropic({ apiKey: tools.codex.token, baseURL: base, maxRetries: 0 }),
  };
}

export type Clients = ReturnType<typeof clientsOf>;

export async function opens(t: Test, scene: DashboardSetup, page: Page, address: string): Promise<void> {
  t.match(address, new RegExp(`^${scene.origin}/#code=kd_[\\w-]{43}$`));
  await page.goto(address);
  await live(page);
  t.equal(page.url(), `${scene.origin}/#/overview`, "the code is gone from the address");
  t.equal(await page.evaluate("history.length"), 2, "and from the history: about:blank and this");
  t.strictSame(await page.context().cookies(), [], "there are no cookies");
  const kept = await page.evaluate("JSON.stringify([{ ...sessionStorage }, { ...localStorage }])");
  t.match(kept, /^\[\{"keybearer\.session":"kd_[\w-]{43}"\},\{\}\]$/);
  await page.reload();
  await live(page);
  t.equal(await page.title(), "Overview · keybearer", "a reload goes on with the session");
  const paint = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime");
  t.comment(`first paint after ${Math.round(Number(paint))} ms`);
}

export async function arrives(
  t: Test,
  { paced, tools }: DashboardSetup,
  page: Page,
  sdk: Clients,
): Promise<void> {
  await show(page, "overview");
  const gateway = page.locator(".gateways tbody tr", { hasText: "paced" });
  await gateway.getByText("no request yet").waitFor();
  t.match(await gateway.innerText(), /^paced\s+http:\S+\s+no request yet\s+–$/);
  const stream = await sdk.writer.chat.completions.create({
    model: "priced",
    stream: true,
    messages: [{ role: "user", content: "hello" }],
  });
  const row = page.locator(".sessions tbody tr", { hasText: tools.writer.name });
  await row.getByText("≈ 3").waitFor();
  t.match(await row.innerText(), /^writer\s[\s\S]*\spriced\s/, "it is there, with the tokens so far");
  await show(page, "usage");
  const listed = page.locator(".records tbody tr", { hasText: "priced" });
  t.equal(await listed.count(), 0);
  paced.release();
  for await (const _ of stream);
  await listed.waitFor();
  t.match(
    await listed.innerText(),
    /writer\s+priced\s+complete\s+12\s+3\s/,
    "it came into the list by itself",
  );
  await show(page, "overview");
  await page.getByText("0 requests in flight").waitFor();
  await gateway.getByText("reachable").waitFor();
  const requests = page.locator(".today .figures div", { hasText: "requests today" });
  await until("it is in today's sums", async () => /\n5(?:\n|$)/.test(await requests.innerText()));
}

export async function filters(t: Test, page: Page): Promise<void> {
  await show(page, "usage");
  const rows = page.locator(".records tbody tr");
  await until("all are listed", async () => (await rows.count()) === 5);
  await page.getByRole("link", { name: "writer", exact: true }).click();
  await until("one is left", async () => (await rows.count()) === 1);
  t.match(await rows.innerText(), /writer/);
  t.match(page.url(), /tool=writer/, "which a bookmark keeps");
  await page.goBack();
  await until("all are back", async () => (await rows.count()) === 5);
  await page.goForward();
  await page.getByRole("link", { name: "remove the filter tool: writer" }).click();
  await until("all are back again", async () => (await rows.count()) === 5);

  await page.keyboard.press("/");
  await page.keyboard.type("PRICED");
  await page.keyboard.press("Enter");
  await until("what was searched for", async () => (await rows.count()) === 1);
  t.match(page.url(), /search=PRICED/);
  await page.getByRole("link", { name: "show everything" }).click();

  await page.getByRole("link", { name: "30 days" }).click();
  // Drawn again for another period: the one that is measured may be gone by then.
  const plot = page.locator(".chart .u-over");
  const bar = async (at: number) => {
    let box: Awaited<ReturnType<typeof plot.boundingBox>> = null;
    await until("the chart is drawn", async () => {
      box = await plot.boundingBox();
      return box !== null;
    });
    const { x, y, width, height } = box ?? { x: 0, y: 0, width: 0, height: 0 };
    await page.mouse.click(x + width * at, y + height / 2);
  };
  await bar(0.01);
  await page.getByText("No record matches.").waitFor();
  await bar(0.99);
  await until("those of today", async () => (await rows.count()) > 0);
  await page.getByRole("link", { name: "show everything" }).click();
}

/** The figures and the list are about the same records. */
export async function filtersByOutcome(page: Page): Promise<void> {
  await show(page, "usage");
  const rows = page.locator(".records tbody tr");
  const requests = page.locator(".usage-sums .figures div", { hasText: "requests" }).locator("dd").first();
  await page.getByRole("combobox", { name: "outcome" }).selectOption("complete");
  await page.getByRole("link", { name: "remove the filter complete" }).waitFor();
  await until("both have changed", async () => {
    const listed = await rows.count();
    return listed < 5 && Number.parseInt(await requests.innerText(), 10) === listed;
  });
  await page.getByRole("combobox", { name: "outcome" }).selectOption("interrupted");
  await page.getByText("No record matches.").waitFor();
  await until("the figures, too", async () => Number.parseInt(await requests.innerText(), 10) === 0);
  await page.getByRole("link", { name: "remove the filter interrupted" }).click();
  await until("all are back", async () => (await rows.count()) === 5);
}

export async function opensRecord(t: Test, page: Page): Promise<void> {
  const row = page.locator(".records tbody tr", { hasText: "priced" });
  await row.getByRole("link").click();
  const dialog = page.getByRole("dialog", { name: "writer · priced" });
  await dialog.waitFor();
  t.match(page.url(), /record=[0-9A-Z]{26}/, "its address can be kept");
  const text = await dialog.innerText();
  for (const part of [/until the first byte/, /chatcmpl-1/, /\b[0-9A-Z]{26}\b/, /\$0\.000018/, /complete/])
    t.match(text, part);
  await page.reload();
  await dialog.waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.waitForURL((url) => !url.hash.includes("record="));
}

export async function disables(t: Test, scene: DashboardSetup, page: Page, sdk: Clients): Promise<void> {
  const { config } = scene.under().paths;
  const chat = () =>
    sdk.codex.chat.completions.create({ model: "m", messages: [{ role: "user", content: "x" }] });
  const message = () =>
    sdk.claude.messages.create({ model: "m", max_tokens: 9, messages: [{ role: "user", content: "x" }] });
  await show(page, "tools");
  const openTool = () => page.getByRole("rowheader").getByRole("link", { name: "codex" }).click();
  await openTool();
  const state = (name: string) => page.locator(`main .state[data-state=${name}]`).waitFor();
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "disable", exact: true }).click();
  await dialog.getByText("enabled: false").waitFor();
  await dialog.getByRole("button", { name: "close" }).click();
  await chat();
  await page.getByRole("button", { name: "disable", exact: true }).click();
  await dialog.getByRole("button", { name: "do it" }).click();
  await dialog.getByText("keybearer tools enable codex").first().waitFor();
  await dialog.getByRole("button", { name: "close" }).click();
  await state("disabled");
  const before = scene.console.reached();
  const openai = await chat().catch((error) => error);
  t.ok(openai instanceof APIError);
  t.match(openai, { status: 400, code: "tool-disabled", message: /tool codex is disabled/ });
  const claude = await message().catch((error) => error);
  t.ok(claude instanceof AnthropicError);
  t.match(claude, { status: 400, error: { type: "error", error: { message: /tool codex is disabled/ } } });
  t.equal(scene.console.reached(), before, "nothing reached the gateway");
  t.equal(readFileSync(config, "utf8"), scene.config.replace(/(codex: .*) \}$/m, "$1, enabled: false }"));

  await show(page, "overview");
  await page.locator(".refusals li").filter({ hasText: "the tool is disabled" }).first().waitFor();
  await show(page, "tools");
  await openTool();
  await page.getByRole("button", { name: "enable", exact: true }).click();
  await dialog.getByText("keybearer confirm").first().waitFor();
  await dialog.getByLabel("The six digits").fill(await digitsFor(scene));
  await dialog.getByRole("button", { name: "do it" }).click();
  await dialog.getByText("Done.").waitFor();
  await dialog.getByRole("button", { name: "close" }).click();
  await state("active");
  await chat();
}

export async function showsTheBill(t: Test, page: Page): Promise<void> {
  await show(page, "bill");
  t.match(await page.locator(".bill-sentence").innerText(), /^\d+ of \d+ rows are yours/);
  const first = page.locator(".bill-diff tbody tr").first();
  const text = await first.innerText();
  for (const part of ["foreign, certain", "did not pass here", STOLEN, "$0.02"])
    t.ok(text.includes(part), text);
  const alarm = "The key of codex was used outside keybearer";
  for (const name of ["usage", "tools", "bill"] as const) {
    await show(page, name);
    t.equal(
      await page.locator(".cards-line p").innerText(),
      `${alarm} · angry refuses the key of broken`,
      `only what it is, on ${name}`,
    );
  }
  const line = page.getByRole("link", { name: "what happened, and what to do" });
  await line.click();
  await line.waitFor({ state: "detached" });
  const words = await page.locator(".card", { hasText: alarm }).innerText();
  for (const part of ["1 request, $0.02", "203.0.113.9", "give codex a new key", "I have handled it"])
    t.ok(words.includes(part), words);
}

/** The bill of a month is all that is printed, with the amounts of our log and of the console. */
export async function printsTheMonth(t: Test, page: Page): Promise<void> {
  await show(page, "bill");
  const bill = page.locator(".bill-month");
  await bill.locator("tbody tr").first().waitFor();
  const month = await bill.getByLabel("month").inputValue();
  await page.emulateMedia({ media: "print" });
  const printed = await page.locator("body").innerText();
  t.match(printed, new RegExp(`Bill of ${month}`));
  t.match(printed, /main: the console charged \$\d/);
  t.match(printed, /\$0\.02 of it is for 1 row that did not pass here/);
  for (const hidden of ["Rows to check", "What the alarm cannot see", "The console's keys"])
    t.notMatch(printed, hidden, `${hidden} is not printed`);
  await page.emulateMedia({ media: "screen" });
  await bill.getByLabel("month").selectOption({ index: 1 });
  await page.waitForURL(/#\/bill\?month=20\d\d-\d\d$/);
  await bill.getByText("0 requests of ours cost").waitFor();
}

/** What `keybearer confirm` would print for the newest action. */
export async function digitsFor(scene: DashboardSetup): Promise<string> {
  const { socket } = scene.under().paths;
  const waiting = await controlOf<WaitingAction[]>(socket, "GET", "/confirmations");
  return (await controlOf<Digits>(socket, "POST", `/confirm/${waiting.at(-1)?.id}`, {})).digits;
}
