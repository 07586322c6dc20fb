import type { BrowserContext, Locator, Page } from "playwright-core";
import t, { type Test } from "tap";
import type { Digits, WaitingAction } from "../../src/control/confirmation.ts";
import { advice } from "../../src/core/advice.ts";
import { findBrowser, startBrowser } from "../doubles/browser.ts";
import { canaryKey, type DaemonUnderTest, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { openDashboard } from "../doubles/dashboard-visit.ts";
import { LONG } from "../doubles/effort.ts";
import { freePort } from "../doubles/listen.ts";
import { controlOf } from "../doubles/mirror-journey.ts";
import { type PacedGateway, startPacedGateway } from "../doubles/paced-gateway.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";
import { watchPages } from "../doubles/watched-page.ts";

/* The overview in a real browser: each card's button does what it says, as independent cases on one page load. */

const browserPath = findBrowser();
const skip =
  browserPath === null ? "no Chromium on this machine (apt-get install chromium-headless-shell)" : false;

interface Scene {
  readonly under: DaemonUnderTest;
  readonly gateway: PacedGateway;
  readonly config: string;
  readonly page: Page;
  readonly card: (title: string) => Locator;
  chat(tool: string, stream?: boolean, model?: string): Promise<Response>;
  /** A call to a gateway that is not there. keybearer tries for some seconds, so it begins first; null: nobody asks for it. */
  readonly lost: Promise<Response> | null;
}

const inLong = { skip: LONG ? false : "npm run test:long takes this part of the walk" };

t.test("where nothing was called, the overview says what to type", { skip }, async (t) => {
  const under = await startUnderTest(t, null);
  const { page, context } = await enter(t, under);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.getByRole("heading", { name: "No requests yet" }).waitFor();
  const curl = `curl http://127.0.0.1:${under.daemon.port}/v1/models -H "Authorization: Bearer $KEYBEARER_TOKEN"`;
  await page.getByRole("button", { name: `copy ${curl}` }).click();
  await page.getByText("copied").waitFor();
  t.equal(await page.evaluate("navigator.clipboard.readText()"), curl);
  const steps = await page.locator(".first-steps").innerText();
  for (const command of [advice.init(), advice.adopt(), / --for claude-code --write/])
    t.match(steps, command);
  t.equal(await page.locator(".card, .today, .refusals").count(), 0);
});

t.test("what needs the person is a card with a button", { skip }, async (t) => {
  const scene = await startScene(t);
  await t.test("a limit that is used up is given more once", (t) => givesMore(t, scene));
  await t.test("a running session is stopped, and allowed again", inLong, (t) => stopsSession(t, scene));
  await t.test("a key that would go elsewhere is held until the change is trusted", inLong, (t) =>
    trusts(t, scene),
  );
  await t.test("a mistake in config.yaml is shown with its line", inLong, (t) => mistaken(t, scene));
  await t.test("a gateway that fails is named with the command that looks into it", inLong, (t) =>
    failing(t, scene),
  );
  await t.test("the figures and the chart are of what was called", (t) => figures(t, scene));
  await t.test("the tools' table and a tool's page say what another model answered", (t) =>
    answeredByAnother(t, scene),
  );
});

async function startScene(t: Test): Promise<Scene> {
  const gateway = await startPacedGateway(t);
  const swapping = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok(JSON.stringify({ id: "chatcmpl-2", model: "small", choices: [], data: [] }));
  });
  const names = ["capped", "lost", "writer", "moved", "swapped"];
  const tools = new Map(names.map((name) => [name, freshToken()]));
  const line = (name: string, at: string, more = "") =>
    `  ${name}: { gateway: ${at}, key: ${canaryKey()}, token: "${tools.get(name)?.hash}"${more} }`;
  const config = `listen: localhost:0
dashboard: { listen: localhost:0 }
gateways:
  paced: { base_url: ${gateway.baseUrl} }
  closed: { base_url: "http://127.0.0.1:${await freePort()}/v1" }
  moving: { base_url: ${gateway.baseUrl} }
  swapping: { base_url: ${swapping.baseUrl} }
tools:
${line("capped", "paced", ", limits: { requests: 1/day }")}
${line("lost", "closed")}
${line("writer", "paced")}
${line("moved", "moving")}
${line("swapped", "swapping")}
prices: { priced: { input: 1, output: 2 } }
`;
  const under = await startUnderTest(t, config);
  const { page } = await enter(t, under);
  const chat = (tool: string, stream = false, model = "priced") =>
    fetch(`${under.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${tools.get(tool)?.token}`, "content-type": "application/json" },
      body: JSON.stringify({ model, stream, messages: [] }),
    });
  const lost = LONG ? chat("lost") : null;
  return {
    under,
    gateway,
    config: config.replace("listen: localhost:0", `listen: localhost:${under.daemon.port}`),
    page,
    card: (title) => page.locator(".card", { has: page.getByRole("heading", { name: title, exact: true }) }),
    chat,
    lost,
  };
}

async function enter(t: Test, under: DaemonUnderTest): Promise<{ page: Page; context: BrowserContext }> {
  const { url, code } = await openDashboard(under.paths.socket);
  const { host, port } = new URL(url);
  const browser = await startBrowser(t, browserPath ?? "", { [host]: Number(port) });
  const page = await watchPages(browser).page({ viewport: { width: 1280, height: 900 } });
  await page.goto(`${url}#code=${code}`);
  await page.locator(".top [data-state=live]").waitFor();
  return { page, context: page.context() };
}

async function givesMore(t: Test, { under, page, card, chat }: Scene): Promise<void> {
  await (await chat("capped")).text();
  t.notOk((await chat("capped")).ok);
  const capped = card("capped has used up a limit");
  await capped.getByText("1 of 1").waitFor();
  t.equal(
    await capped.getByRole("link", { name: "raise the limit" }).getAttribute("href"),
    "#/tools?tool=capped",
  );
  await capped.getByRole("button", { name: "give 1 request more once" }).click();
  await confirm(under, page);
  await capped.waitFor({ state: "detached" });
  t.equal((await chat("capped")).status, 200);
}

async function failing(t: Test, { card, lost, page }: Scene): Promise<void> {
  t.equal((await lost)?.ok, false);
  const closed = card("Gateway closed is failing");
  await closed.getByText("ECONNREFUSED").waitFor();
  await closed.getByRole("button", { name: "copy keybearer doctor" }).waitFor();
  const row = page.locator(".gateways tbody tr", { hasText: "closed" });
  t.match(await row.innerText(), /failing\s+since \d\d:\d\d/);
}

async function stopsSession(t: Test, { under, page, chat, gateway }: Scene): Promise<void> {
  const answer = await chat("writer", true);
  const row = page.locator(".sessions tbody tr", { hasText: "writer" });
  await row.getByText("priced").waitFor();
  await row.getByRole("button", { name: "stop writer" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "do it" }).click();
  await page.getByRole("dialog").getByText("Done.").waitFor();
  await page.keyboard.press("Escape");
  await t.rejects(answer.text(), "its request was cut");
  t.notOk((await chat("writer")).ok, "and it gets no other");
  await row.getByRole("button", { name: "allow again writer" }).click();
  await confirm(under, page);
  await row.getByRole("button", { name: "stop writer" }).waitFor();
  t.equal((await chat("writer")).status, 200);
  gateway.release();
}

async function trusts(t: Test, { under, page, card, chat, config, gateway }: Scene): Promise<void> {
  const elsewhere = gateway.baseUrl.replace("127.0.0.1", "localhost");
  await under.save(
    config.replace(`moving: { base_url: ${gateway.baseUrl} }`, `moving: { base_url: ${elsewhere} }`),
  );
  const held = card("moved is held until you trust a change");
  await held.getByRole("button", { name: "trust the change of moved" }).click();
  await page.getByRole("dialog").getByText(new URL(elsewhere).host).waitFor();
  await confirm(under, page);
  await held.waitFor({ state: "detached" });
  t.equal((await chat("moved")).status, 200);
}

async function mistaken(t: Test, { under, page, card, config }: Scene): Promise<void> {
  await under.save(`${config}limitz: 3\n`);
  const problems = card("config.yaml has problems");
  await problems.getByText("limitz: 3").waitFor();
  t.match(await problems.innerText(), /"limitz" is not a setting here[\s\S]*keybearer check/);
  await page.getByRole("link", { name: "Usage" }).click();
  await page.locator(".cards-line", { hasText: "config.yaml has problems" }).waitFor();
  await page.getByRole("link", { name: "what happened, and what to do" }).click();
  await problems.waitFor();
  await under.save(config);
  await problems.waitFor({ state: "detached" });
}

async function figures(t: Test, { page, chat, under }: Scene): Promise<void> {
  await (await chat("writer")).text();
  const ended = under.ended().reduce((sum, { requests }) => sum + requests, 0);
  const figure = (name: string) => page.locator(".today .figures > div", { hasText: name }).innerText();
  await until("the requests are counted", async () =>
    (await figure("requests today")).startsWith(`requests today\n${ended}\n`),
  );
  t.match(await figure("cost today"), /\$0\.0\d+.*\n+there is no earlier day/);
  await until("none is in flight", async () => /\n0/.test(await figure("in flight")));
  await page.reload();
  const cost = page.locator(".last-day");
  await cost.getByRole("img", { name: "Cost of the last 24 hours, by tool" }).waitFor();
  await cost.locator("summary").click();
  t.match(await cost.locator("thead").innerText(), /writer/);
  t.match(await cost.locator("tbody tr").last().innerText(), /\$0\.0\d/);
}

async function answeredByAnother(t: Test, { page, chat }: Scene): Promise<void> {
  for (const model of ["priced", "small", "priced"]) await (await chat("swapped", false, model)).text();
  await page.getByRole("link", { name: "Tools", exact: true }).click();
  const row = page.locator(".tool-list tbody tr", { hasText: "swapped" });
  await row.getByText("2 of 3").waitFor();
  const heads = await page.locator(".tool-list thead th").allInnerTexts();
  t.equal(heads.at(-1)?.trim(), "answered by another model");
  await row.getByRole("link", { name: "swapped" }).click();
  const models = page.locator(".tool-models");
  await models.getByText("2 of 3").waitFor();
  t.match(await models.locator("tbody tr").allInnerTexts(), [/^priced\s+small\s+2$/]);
  t.equal(await page.title(), "swapped · Tools · keybearer");
}

/** Types the six digits that `keybearer confirm` would print for the newest action. */
async function confirm({ paths: { socket } }: DaemonUnderTest, page: Page): Promise<void> {
  const dialog = page.getByRole("dialog");
  const field = dialog.getByLabel("The six digits");
  await field.waitFor();
  const waiting = await controlOf<WaitingAction[]>(socket, "GET", "/confirmations");
  const { digits } = await controlOf<Digits>(socket, "POST", `/confirm/${waiting.at(-1)?.id}`, {});
  await field.fill(digits);
  await dialog.getByRole("button", { name: "do it" }).click();
  await dialog.getByText("Done.").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
}
