import type { Page } from "playwright-core";
import type { Test } from "tap";
import type { DashboardSetup } from "../doubles/dashboard-setup.ts";
import { until } from "../doubles/until.ts";
import { type Clients, WIDE } from "./browser-visit.ts";

/* Nothing moves under the pointer while requests come and go. */

/** Everything is in view: of what is not, nothing is measured. */
const TALL = { width: 1280, height: 2400 };

interface Move {
  readonly what: string;
  /** In a list whose newest comes first, an older one makes room for it; so does the foot of the page. */
  readonly inList: boolean;
  readonly right: number;
  readonly down: number;
}

interface Shift {
  readonly value: number;
  readonly moves: readonly Move[];
}

const WATCH = `{
  window.shifts = [];
  const moveOf = ({ node, previousRect: from, currentRect: to }) => {
    const element = node?.nodeType === 1 ? node : node?.parentElement;
    return {
      what: (element?.outerHTML ?? "what is gone").slice(0, 120),
      inList: element?.closest(".records tbody, .refusals li, footer") != null,
      right: to.x - from.x,
      down: to.y - from.y,
    };
  };
  new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries()) shifts.push({ value, moves: sources.map(moveOf) });
  }).observe({ type: "layout-shift" });
}`;

/** Since it was asked last. What moved is noted with the next frame. */
const MOVED = `(async () => {
  for (let frame = 0; frame < 3; frame += 1)
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return shifts.splice(0);
})()`;

/** A number at the right of its column that gets a further digit begins further to the left. */
const TWO_DIGITS_PX = 20;
const MOST_VALUE = 0.001;

async function nothingMoved(t: Test, page: Page, name: string): Promise<void> {
  const shifts = await page.evaluate<Shift[]>(MOVED);
  const moves = shifts.flatMap((shift) => shift.moves).filter(({ inList }) => !inList);
  t.strictSame(
    moves.filter(({ right, down }) => Math.abs(down) > 0 || Math.abs(right) > TWO_DIGITS_PX),
    [],
    `nothing moved on ${name}`,
  );
  const value = shifts
    .filter((shift) => shift.moves.some(({ inList }) => !inList))
    .reduce((sum, shift) => sum + shift.value, 0);
  t.ok(value < MOST_VALUE, `${value} on ${name}`);
}

/** What happens while each page is looked at: requests in flight, others that end, and refusals. */
export async function staysInPlace(
  t: Test,
  scene: DashboardSetup,
  page: Page,
  { writer }: Clients,
): Promise<void> {
  const { paced, origin, under } = scene;
  const text = (selector: string) => page.locator(selector).first().innerText();
  const stream = () =>
    writer.chat.completions.create({
      model: "priced",
      stream: true,
      messages: [{ role: "user", content: "x" }],
    });
  const stranger = async (model: string) => {
    const init = {
      method: "POST",
      headers: { authorization: "Bearer kb_x" },
      body: JSON.stringify({ model }),
    };
    await (await fetch(`${under().url}/v1/chat/completions`, init)).text();
  };
  const changes = async (selector: string, cause: () => Promise<unknown>) => {
    const before = await text(selector);
    await cause();
    await until(`${selector} has changed`, async () => (await text(selector)) !== before);
  };
  const calls = async () => {
    for (let call = 0; call < 3; call += 1) await (await scene.chat("codex", "priced")).text();
  };
  const open = async (hash: string, there: string) => {
    await page.goto(`${origin}/${hash}`);
    await page.locator(there).first().waitFor();
    await until(
      "it is drawn",
      async () => (await page.locator("main .empty", { hasText: "loading" }).count()) === 0,
    );
    await page.evaluate("window.shifts?.splice(0)");
  };
  await stranger("m");
  await calls();
  await page.setViewportSize(TALL);
  await page.reload();
  await page.locator("main h1").waitFor();
  await open("#/overview", ".last-day .u-over");
  // Its first request of today moves those below it.
  const row = page.locator(".sessions tbody tr", { hasText: "writer" });
  await row.waitFor();
  await page.locator(".refusals li", { hasText: "unknown" }).first().waitFor();
  await page.evaluate(WATCH);
  const streams = [await stream(), await stream()];
  await row.getByText("≈ 6").waitFor();
  await changes(".today", calls);
  await changes(".refusals", () => stranger("m"));
  await row.getByText(/2 \(\d+ s\)/).waitFor();
  await nothingMoved(t, page, "the overview");

  await open("#/tools", ".tool-list tbody tr");
  await changes(".tool-list tbody", async () => streams.push(await stream()));
  await changes(".tool-list tbody td.num", calls);
  await nothingMoved(t, page, "the tools");

  await open("#/tools?tool=writer", ".tool-tokens tbody tr");
  await changes(".sessions tbody", async () => streams.push(await stream()));
  await row.or(page.locator(".sessions tbody tr")).getByText("≈ 12").waitFor();
  await nothingMoved(t, page, "the page of a tool");

  await open("#/usage", ".records tbody tr");
  await changes(".usage-sums .figures", async () => {
    paced.release();
    for (const each of streams) for await (const _ of each);
  });
  await changes(".usage-sums .figures", calls);
  await nothingMoved(t, page, "the usage");
  await page.setViewportSize(WIDE);
}
