import type { Page } from "playwright-core";
import t, { type Test } from "tap";
import { findPaths } from "../../src/core/paths.ts";
import { DAY_MS, dayName, exact } from "../../src/core/units.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { startOfDay } from "../../src/usage/reports/calendar.ts";
import { type Outcome, SELECTED_NAMES, type SelectedName } from "../../src/usage/reports/names.ts";
import { findBrowser, startBrowser } from "../doubles/browser.ts";
import { newHome } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { openDashboard } from "../doubles/dashboard-visit.ts";
import { makeIndex } from "../doubles/journal.ts";
import { plausible } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";
import { watchPages } from "../doubles/watched-page.ts";
import { live, WIDE } from "./browser-visit.ts";

/* The page beside a usage log of 100,000 records: as independent cases on one page load. */

const RECORDS = 100_000;
const DAYS = 60;
/** Whatever is asked: the page has at most so many elements, of which an empty one has 300. */
const MOST_ELEMENTS = 3000;

const browserPath = findBrowser();
const skip =
  browserPath === null ? "no Chromium on this machine (apt-get install chromium-headless-shell)" : false;

interface Scene {
  readonly page: Page;
  readonly records: readonly UsageRecord[];
  /** Shows the usage of all days, of what is selected. */
  usage(selection?: Readonly<Record<string, string>>): Promise<void>;
}

t.test("with 100,000 records", { skip }, async (t) => {
  const scene = await startScene(t);
  await t.test("the overview is there", (t) => showsToday(t, scene));
  await t.test("the usage by each name", async (t) => {
    for (const by of SELECTED_NAMES) await t.test(by, (t) => sumsBy(t, scene, by));
  });
  await t.test("filters", (t) => filters(t, scene));
  await t.test("search", (t) => searches(t, scene));
  await t.test("paging", (t) => pages(t, scene));
  await t.test("a record", (t) => opens(t, scene));
});

async function startScene(t: Test): Promise<Scene> {
  const home = await newHome(t);
  const { state } = findPaths({ env: { KEYBEARER_HOME: home }, home });
  const now = Date.now();
  const records = [...plausible(RECORDS, now - DAYS * DAY_MS, DAYS)].map(withNames);
  makeIndex(state, records);
  const { hash } = freshToken();
  const config = `dashboard: { listen: localhost:0 }
gateways: { main: { base_url: "http://localhost:9/v1" } }
tools: { codex: { gateway: main, key: sk-1234567890, token: "${hash}" } }
`;
  const under = await startUnderTest(t, config, { home });
  const { url, code } = await openDashboard(under.paths.socket);
  const { host, origin, port } = new URL(url);
  const browser = await startBrowser(t, browserPath ?? "", { [host]: Number(port) });
  const page = await watchPages(browser).page({ viewport: WIDE });
  await page.goto(`${url}#code=${code}`);
  await live(page);
  const period = `${dayName(now - DAYS * DAY_MS)}..${dayName(now)}`;
  return {
    page,
    records,
    async usage(selection = {}) {
      await page.goto(`${origin}/#/usage?${new URLSearchParams({ period, ...selection })}`);
      await page.locator(".records .empty, .records tbody tr").first().waitFor();
    },
  };
}

/** 2,500 sessions in 40 projects, in three groups and on two machines. */
function withNames(record: UsageRecord, at: number): UsageRecord {
  const session = Math.floor(at / 40);
  const isElsewhere = at % 5 === 0;
  return {
    ...record,
    session: `run-${session}`,
    project: `/home/me/project-${session % 40}`,
    group: ["coding", "light", null][session % 3] ?? null,
    key: `…${1000 + (session % 7)}`,
    machine: isElsewhere ? "laptop" : null,
    machine_id: isElsewhere ? "id-of-laptop" : null,
    verified: isElsewhere ? true : null,
  };
}

const figure = (page: Page, name: string) =>
  page.locator(".figures > div", { hasText: name }).first().locator("dd").first();

async function isBounded(t: Test, page: Page, most = MOST_ELEMENTS): Promise<void> {
  const elements = await page.evaluate<number>("document.querySelectorAll('*').length");
  t.ok(elements < most, `${elements} elements`);
}

async function showsToday(t: Test, { page, records }: Scene): Promise<void> {
  const ofToday = () => records.filter(({ started_at: at }) => at >= startOfDay(Date.now())).length;
  await until("today is counted", async () => {
    const text = await figure(page, "requests today").innerText();
    return text === exact(ofToday());
  });
  await page.locator(".last-day .u-over").waitFor();
  await isBounded(t, page);
}

async function sumsBy(t: Test, { page, records, usage }: Scene, by: SelectedName): Promise<void> {
  await usage({ by });
  const names = new Set(records.map((record) => record[by]));
  const heads = page.locator(".usage-name");
  await page.getByRole("columnheader", { name: by, exact: true }).first().waitFor();
  await until("all are counted", async () => (await figure(page, "requests").innerText()) === exact(RECORDS));
  const shown = Math.min(10, names.size);
  await until(`${shown} names are listed`, async () => (await heads.count()) === shown);
  await isBounded(t, page);
  if (names.size > 1000) await page.getByText(`the first 1,000 of ${exact(names.size)} names`).waitFor();
  if (names.size <= 10) return;
  await page.locator(".usage-sums button[aria-expanded=false]").click();
  await until("the others are there", async () => (await heads.count()) === Math.min(1000, names.size));
  // The most that the page ever gets.
  await isBounded(t, page, 30_000);
}

async function filters(t: Test, { page, records, usage }: Scene): Promise<void> {
  const cases: [selection: Record<string, string>, isIn: (record: UsageRecord) => boolean][] = [
    [{ tool: "codex" }, ({ tool }) => tool === "codex"],
    [{ tool: "codex", model: "gpt-5.1" }, ({ tool, model }) => tool === "codex" && model === "gpt-5.1"],
    [{ end: "refused" satisfies Outcome }, ({ end }) => end === "refused"],
    [{ session: "run-77" }, ({ session }) => session === "run-77"],
    [
      { machine: "laptop", group: "light" },
      ({ machine, group }) => machine === "laptop" && group === "light",
    ],
  ];
  for (const [selection, isIn] of cases) {
    const count = records.filter(isIn).length;
    t.ok(count > 0);
    await usage(selection);
    await until(`${JSON.stringify(selection)} has ${count}`, async () => {
      const [said, listed] = [
        await figure(page, "requests").innerText(),
        await page.locator(".records tbody tr").count(),
      ];
      return said === exact(count) && listed === Math.min(50, count);
    });
    await isBounded(t, page);
  }
}

async function searches(t: Test, { page, usage }: Scene): Promise<void> {
  const rows = page.locator(".records tbody tr");
  await usage();
  await page.keyboard.press("/");
  await page.keyboard.type("id-77777");
  await page.keyboard.press("Enter");
  await until("one is found", async () => (await rows.count()) === 1);
  await rows.getByRole("link").click();
  await page.getByRole("dialog").getByText("id-77777", { exact: true }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await usage({ search: "is in none of them" });
  await page.getByText("No record matches.").waitFor();
  t.equal(await rows.count(), 0);
}

async function pages(t: Test, { page, usage }: Scene): Promise<void> {
  const rows = page.locator(".records tbody tr");
  const hrefs = () =>
    rows.getByRole("link").evaluateAll((links) => links.map((link) => link.getAttribute("href") ?? ""));
  const idOf = (href: string) => /record=(\w+)/.exec(href)?.[1] ?? "";
  await usage({ tool: "codex" });
  await until("the first page is there", async () => (await rows.count()) === 50);
  const seen: string[] = [];
  for (let read = 0; read < 4; read += 1) {
    const ids = (await hrefs()).map(idOf);
    t.equal(ids.length, 50);
    t.strictSame(ids, ids.toSorted().toReversed(), "the newest first");
    t.ok(
      seen.every((id) => ids.every((other) => other < id)),
      "each page is older",
    );
    seen.push(...ids);
    await page.getByRole("link", { name: "older" }).click();
    await until("another page is there", async () => !ids.includes(idOf((await hrefs())[0] ?? "")));
    await isBounded(t, page);
  }
  await page.getByRole("link", { name: "newer" }).click();
  await until("the page before is there", async () => idOf((await hrefs())[0] ?? "") === seen.at(-50));
  await page.getByRole("link", { name: "newest" }).click();
  await until("the first page is there", async () => idOf((await hrefs())[0] ?? "") === seen[0]);
}

async function opens(t: Test, { page, records, usage }: Scene): Promise<void> {
  const record = records.find(({ end }, at) => at > RECORDS / 2 && end === "gateway-failed");
  await usage({ record: record?.id ?? "" });
  const dialog = page.getByRole("dialog", { name: `${record?.tool} · ${record?.model}` });
  await dialog
    .getByText(record?.id ?? "")
    .first()
    .waitFor();
  t.match(await dialog.innerText(), record?.session ?? "");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await isBounded(t, page);
}
