import { readFileSync } from "node:fs";
import type { Locator, Page } from "playwright-core";
import type { Test } from "tap";
import type { ConfirmedAction, WaitingAction } from "../../src/control/confirmation.ts";
import type { SessionStatus } from "../../src/control/session-status.ts";
import type { Status } from "../../src/control/status.ts";
import { hashToken } from "../../src/core/token.ts";
import type { Action } from "../../src/dashboard/actions/actions.ts";
import { freshToken } from "../doubles/daemon-under-test.ts";
import type { DashboardSetup } from "../doubles/dashboard-setup.ts";
import { type Caller, consoleKey, controlOf } from "../doubles/mirror-journey.ts";
import { until } from "../doubles/until.ts";
import type { Hands } from "./browser-hands.ts";
import { digitsFor } from "./browser-visit.ts";

/* Every action that a page can ask for, done on the page. Each case begins with the same config.yaml. */

export interface Stage {
  readonly scene: DashboardSetup;
  readonly page: Page;
  /** A tool of these cases alone. */
  readonly agent: Caller;
  /** The same, for the case that makes its key useless. */
  readonly worn: Caller;
  readonly dialog: Locator;
  /** config.yaml as it is at the beginning of each case. */
  readonly start: string;
  /** config.yaml as it is now. */
  text(): string;
  status(): Promise<Status>;
  /** Opens the page of the agent, or another one. */
  open(hash?: string): Promise<void>;
  press(name: string | RegExp, role?: "button" | "link"): Promise<void>;
  fill(label: string, text: string): Promise<void>;
  /** Chooses the option of a field by its value. */
  choose(label: string, value: string): Promise<void>;
  /** Agrees in the dialog, with the digits that the terminal prints if it asks for them. */
  agree(): Promise<void>;
  /** Closes the dialog. The focus must be back where it was. */
  close(): Promise<void>;
  /** Closes a dialog that followed another one, wherever the focus is then. */
  leave(): Promise<void>;
  /** A request of the agent, or of another tool: its status, or why it was refused. */
  ask(session?: string, caller?: Caller): Promise<string | number>;
}

const AGENT_LIMITS =
  "limits: { spend: $5/day, requests: 100/hour, session: { requests: 3 } }, quota: $50, expires: 2031-01-01";

/** Adds tools for these cases to config.yaml: one with limits, one whose key can be useless, one at a gateway that can be moved. */
export function prepareActions(scene: DashboardSetup, page: Page): (hands: Hands) => Stage {
  const agent = { name: "agent", key: consoleKey(), ...freshToken() };
  const mover = { name: "mover", key: consoleKey(), ...freshToken() };
  const worn = { name: "worn", key: consoleKey(), ...freshToken() };
  for (const each of [agent, worn]) scene.console.addKey(each);
  const toolOf = ({ name, key, hash }: Caller, gateway: string, more: string) =>
    `  ${name}: { gateway: ${gateway}, key: ${key}, token: "${hash}", ${more} }`;
  const start = scene.config
    .replace("gateways:\n", `gateways:\n  side: { base_url: "http://localhost:9/v1" }\n`)
    .replace(
      "tools:\n",
      `tools:\n${toolOf(agent, "main", AGENT_LIMITS)}\n${toolOf(worn, "main", "limits: {}")}\n${toolOf(mover, "side", "limits: {}")}\n`,
    );
  const { socket, config } = scene.under().paths;
  const dialog = page.getByRole("dialog");
  const text = () => readFileSync(config, "utf8");
  const status = () => controlOf<Status>(socket, "GET", "/status");
  const begin = async () => {
    if (text() === start) return;
    const { revision } = (await status()).config;
    await scene.under().save(start);
    await until("config.yaml is read", async () => (await status()).config.revision > revision);
  };
  const field = (label: string) => dialog.getByLabel(label, { exact: true });
  const button = (name: string | RegExp, role: "button" | "link") =>
    page.getByRole(role, { name, exact: typeof name === "string" });
  const leave = async () => {
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  };
  const close = async () => {
    await leave();
    await until("the focus is where it was", () => page.evaluate(IS_BACK));
  };
  return (hands) => ({
    scene,
    page,
    agent,
    worn,
    dialog,
    start,
    text,
    status,
    async open(hash = "#/tools?tool=agent") {
      // What an earlier case left open is none of this one's.
      if ((await dialog.count()) > 0) await close();
      await begin();
      await page.goto(`${scene.origin}/${hash}`);
      await page.locator("main h1").waitFor();
    },
    async press(name, role = "button") {
      const target = button(name, role);
      if ((await dialog.count()) === 0) await target.first().evaluate(noteOpener);
      await hands.press(target);
    },
    fill: (label, typed) => hands.fill(field(label), typed),
    choose: (label, value) => hands.choose(field(label), value),
    async agree() {
      await dialog.getByRole("button", { name: "do it" }).waitFor();
      const digits = field(DIGITS);
      if ((await digits.count()) > 0) await hands.fill(digits, await digitsFor(scene));
      await hands.press(dialog.getByRole("button", { name: "do it" }));
      await dialog.getByText("Done.").waitFor();
    },
    close,
    leave,
    async ask(session, caller = agent) {
      const answer = await fetch(`${scene.under().url}/v1/chat/completions`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${caller.token}`,
          "content-type": "application/json",
          ...(session === undefined ? {} : { "x-claude-code-session-id": session }),
        },
        body: JSON.stringify({ model: "priced", messages: [] }),
      });
      await answer.text();
      return answer.headers.get("x-keybearer-refusal") ?? answer.status;
    },
  });
}

const DIGITS = "The six digits that it prints";

/** Runs in the page. */
function noteOpener(element: unknown): void {
  Object.assign(globalThis, { opened: element });
}

/** What opened the dialog may be gone with it. */
const IS_BACK = "!window.opened?.isConnected || document.activeElement === window.opened";

interface Case {
  readonly kinds: readonly Action["kind"][];
  readonly title: string;
  readonly run: (t: Test, stage: Stage) => Promise<void>;
}

/** For `npm test`. */
export const FIRST_CASES: readonly Case[] = [
  {
    kinds: ["set"],
    title: "a limit is raised with the digits for it, and with no others",
    async run(t, stage) {
      const { dialog, scene, page, press, fill, text, start } = stage;
      const { socket } = scene.under().paths;
      await stage.open();
      // Another action that waits for its digits.
      await press("new token");
      await fill("name of the token", "laptop");
      await press("continue");
      await dialog.getByLabel("The six digits").waitFor();
      const forToken = await digitsFor(scene);
      await stage.close();
      await press("change its settings");
      await fill("money", "500/day");
      await press("continue");
      await dialog.locator(".diff [data-kind='+']", { hasText: "$500/day" }).waitFor();
      await press("do it");
      t.equal(await dialog.getByText("Done.").count(), 0, "not without digits");
      const digits = await digitsFor(scene);
      await dialog.getByLabel("The six digits").fill(forToken === digits ? "999999" : forToken);
      await press("do it");
      await dialog.getByRole("alert").getByText("These are not the digits for this action").waitFor();
      t.equal(text(), start, "nothing was changed");
      await dialog.getByLabel("The six digits").fill(digits);
      await press("do it");
      await dialog.getByText("Done.").waitFor();
      await dialog.getByText("keybearer tools set agent limits.spend=5/day").first().waitFor();
      t.equal(text(), start.replace("$5/day", "$500/day"));
      t.same(
        (await controlOf<WaitingAction[]>(socket, "GET", "/confirmations")).map(({ what }) => what),
        ["make a token laptop for agent"],
        "the other one still waits",
      );
      await stage.close();
      await page.locator(".limit", { hasText: "$500.00" }).waitFor();
    },
  },
  {
    kinds: ["disable"],
    title: "a tool is disabled by the keyboard alone",
    async run(t, stage) {
      const { page, dialog, scene, text, start } = stage;
      await stage.open("#/events");
      await page.keyboard.press("g");
      await page.keyboard.press("t");
      await page.getByRole("searchbox").waitFor();
      await page.keyboard.press("/");
      await page.keyboard.type("agent");
      await until("one tool is left", async () => (await page.locator("tbody tr").count()) === 1);
      const tabTo = async (name: RegExp) => {
        for (let presses = 0; presses < 40; presses += 1) {
          await page.keyboard.press("Tab");
          const focused = await page.evaluate<string>("document.activeElement?.textContent ?? ''");
          if (name.test(focused)) return;
        }
        throw new Error(`Tab does not lead to ${name}`);
      };
      await tabTo(/^agent$/);
      await page.keyboard.press("Enter");
      await page.locator("h1", { hasText: "agent" }).waitFor();
      await tabTo(/^disable$/);
      await page.keyboard.press("Enter");
      await dialog.getByRole("button", { name: "do it" }).waitFor();
      await tabTo(/^do it$/);
      await page.keyboard.press("Enter");
      await dialog.getByText("Done.").waitFor();
      await stage.close();
      // The focus is where it was, on the button that now does the opposite.
      await page.locator("button:focus", { hasText: /^enable$/ }).waitFor();
      t.equal(text(), start.replace(/(agent: .*) \}$/m, "$1, enabled: false }"));
      await scene.under().save(start);
      await page.locator("button:focus", { hasText: /^disable$/ }).waitFor();
    },
  },
  {
    kinds: ["set"],
    title: "what is typed wrong is said beside its field, and nothing that was typed is lost",
    async run(t, stage) {
      const { dialog, press, fill, text, start } = stage;
      await stage.open();
      await press("change its settings");
      await press("continue");
      await dialog.getByText("Nothing was changed.").waitFor();
      await fill("money", "lots");
      await fill("tokens", "1M/day");
      await press("continue");
      const money = stage.page.getByLabel("money", { exact: true });
      await dialog.locator(".field", { has: money }).getByText('"lots" is not a limit').waitFor();
      t.equal(await money.getAttribute("aria-invalid"), "true");
      await money.and(stage.page.locator(":focus")).waitFor();
      t.equal(await dialog.getByLabel("tokens", { exact: true }).inputValue(), "1M/day");
      await stage.close();
      await press("give more once");
      await stage.choose("limit", "spend");
      await fill("how many dollars more", "-1");
      await press("continue");
      await dialog.getByText("Write an amount of dollars above zero").waitFor();
      await stage.close();
      t.equal(text(), start);
    },
  },
];

/** For the long suite, by the keyboard alone. */
export const MORE_CASES: readonly Case[] = [
  {
    kinds: ["set"],
    title: "a lower limit, quota, expiry and group need no digits",
    async run(t, stage) {
      const { dialog, press, fill, text, start } = stage;
      await stage.open();
      await press("change its settings");
      await fill("money", "2/day");
      await fill("quota in dollars, in total", "10");
      await fill("last day", "2030-12-31");
      await press("continue");
      await dialog.getByRole("button", { name: "do it" }).waitFor();
      t.equal(await dialog.getByLabel("The six digits").count(), 0);
      await stage.agree();
      await stage.close();
      t.equal(
        text(),
        start.replace("$5/day", "$2/day").replace("$50", "$10").replace("2031-01-01", "2030-12-31"),
      );
    },
  },
  {
    kinds: ["enable"],
    title: "a disabled tool is enabled again",
    async run(t, stage) {
      const { press, text, start } = stage;
      await stage.open();
      await press("disable");
      await stage.agree();
      await stage.close();
      await press("enable");
      await stage.agree();
      await stage.close();
      t.equal(text().replace(", enabled: true", ""), start);
      t.equal(await stage.ask(), 200);
    },
  },
  {
    kinds: ["give", "take-back"],
    title: "more is given once, and taken back",
    async run(t, stage) {
      const { page, press, fill, text, start } = stage;
      const spend = async () => {
        const { tools } = await stage.status();
        return tools.find(({ name }) => name === "agent")?.limits.find(({ limit }) => limit === "spend");
      };
      await stage.open();
      await press("give more once");
      await stage.choose("limit", "spend");
      await fill("how many dollars more", "1.50");
      await press("continue");
      await stage.agree();
      await stage.close();
      t.match(await spend(), { most: 6_500_000, extra: 1_500_000 });
      await page.locator(".limit", { hasText: "$5.00+$1.50" }).waitFor();
      await press("take back the extra allowance");
      await stage.agree();
      await stage.close();
      t.match(await spend(), { most: 5_000_000, extra: 0 });
      t.equal(text(), start);
    },
  },
  {
    kinds: ["token", "revoke"],
    title: "a new token is printed in the terminal and never in the page, and is revoked",
    async run(t, stage) {
      const { scene, page, dialog, press, fill, text, start } = stage;
      const { socket } = scene.under().paths;
      await stage.open();
      await press("new token");
      await fill("name of the token", "my laptop");
      await press("continue");
      await dialog.getByText("Use up to 40 letters").waitFor();
      await fill("name of the token", "laptop");
      await press("continue");
      // Then it waits, and is the newest.
      await dialog.getByLabel("The six digits").waitFor();
      await fill(DIGITS, await digitsFor(scene));
      const waiting = await controlOf<WaitingAction[]>(socket, "GET", "/confirmations");
      const ended = controlOf<ConfirmedAction>(socket, "GET", `/confirmed/${waiting.at(-1)?.id}`);
      await press("do it");
      await dialog.getByText("printed the token in the terminal").waitFor();
      const { token } = await ended;
      t.match(token, /^kb_/);
      t.ok(text().includes(hashToken(token ?? "")), "config.yaml has its hash");
      t.notOk((await page.content()).includes(token ?? ""), "the page does not have it");
      const received = scene.tap.connections.map((connection) => connection.received()).join("\n");
      t.notOk(received.includes(token ?? ""), "and never had it");
      await stage.close();
      await press(/^revoke laptop$/);
      await stage.agree();
      await page.locator(".tool-tokens tr", { hasText: "laptop" }).waitFor({ state: "detached" });
      await stage.close();
      await page.locator("main:focus").waitFor();
      t.notOk(text().includes(hashToken(token ?? "")));
      t.ok(text().includes(stage.agent.hash), "the other one stays");
      t.not(text(), start, "as a list");
    },
  },
  {
    kinds: ["stop-session", "allow-session", "give-session"],
    title: "a session is stopped, allowed, and given more",
    async run(t, stage) {
      const { scene, page, press, fill } = stage;
      const { socket } = scene.under().paths;
      await stage.open();
      t.equal(await stage.ask("run-1"), 200);
      await page.getByRole("button", { name: "stop run-1" }).waitFor();
      await press(/^stop run-1$/);
      await stage.agree();
      await stage.close();
      t.equal(await stage.ask("run-1"), "session-stopped");
      await press(/^allow again run-1$/);
      await stage.agree();
      await stage.close();
      t.same([await stage.ask("run-1"), await stage.ask("run-1")], [200, 200]);
      t.equal(await stage.ask("run-1"), "session-limited");
      await press(/^give more once run-1$/);
      await stage.choose("limit", "requests");
      await fill("how much more", "5");
      await press("continue");
      await stage.agree();
      await stage.close();
      t.equal(await stage.ask("run-1"), 200);
      const sessions = await controlOf<SessionStatus[]>(socket, "GET", "/sessions");
      t.match(
        sessions.find(({ session }) => session === "run-1"),
        { limits: [{ limit: "requests", most: 8, extra: 5 }] },
      );
    },
  },
  {
    kinds: ["create", "rotate"],
    title: "a tool is added with a key of the console, and its key is rotated",
    async run(t, stage) {
      const { page, dialog, press, fill, text } = stage;
      const keyOf = async () => (await stage.status()).tools.find(({ name }) => name === "zed")?.key ?? null;
      await stage.open("#/tools");
      await press("add a tool");
      await fill("tool", "zed");
      await stage.choose("gateway", "side");
      await dialog.getByText("keybearer tools add zed --gateway side").first().waitFor();
      await stage.choose("gateway", "main");
      await stage.choose("key", "console");
      await fill("group", "default");
      await press("continue");
      await dialog.locator(".diff [data-kind='+']", { hasText: "zed" }).first().waitFor();
      await stage.agree();
      await stage.close();
      t.match(text(), /^ {2}zed:/m);
      await press("zed", "link");
      await page.locator("h1", { hasText: "zed" }).waitFor();
      const before = await keyOf();
      t.not(before, null);
      await press("rotate its key");
      await stage.agree();
      await stage.close();
      await until("it has another key", async () => (await keyOf()) !== before);
      const after = await keyOf();
      await page
        .locator("section code", { hasText: after ?? "" })
        .first()
        .waitFor();
    },
  },
  {
    kinds: ["rotate"],
    title: "a refused key is replaced from its card, which leads to the console, too",
    async run(t, stage) {
      const { scene, page, press, worn } = stage;
      await stage.open("#/overview");
      for (const held of scene.console.keys) if (held.key === worn.key) held.disabled = true;
      t.equal(await stage.ask(undefined, worn), 401);
      const card = page.locator(".card", { hasText: "main refuses the key of worn" });
      await card.getByText("It answers").waitFor();
      // The browser of these tests reaches no other address.
      await page.evaluate(`addEventListener("click", (event) => {
        const link = event.target.closest("a[target]");
        if (link === null) return;
        event.preventDefault();
        window.followed = { href: link.href, target: link.target, rel: link.rel };
      })`);
      await press("open the console of main", "link");
      t.strictSame(await page.evaluate("window.followed"), {
        href: new URL(scene.console.url).href,
        target: "_blank",
        rel: "noreferrer",
      });
      await press("give worn a new key");
      await stage.agree();
      await card.waitFor({ state: "detached" });
      await stage.close();
      await page.locator("main:focus").waitFor();
      t.equal(await stage.ask(undefined, worn), 200);
    },
  },
  {
    kinds: ["remember-browser", "revoke-browser"],
    title: "this browser is remembered, and not any more",
    async run(t, stage) {
      const { press, fill, dialog, page } = stage;
      await stage.open("#/events");
      await press("bookmark");
      await fill("name", "laptop");
      await press("continue");
      await dialog.getByText("+ browser laptop").waitFor();
      await stage.agree();
      await stage.leave();
      await press("bookmark");
      await dialog.getByText("This browser is remembered as laptop").waitFor();
      await press("revoke laptop");
      await stage.agree();
      await stage.leave();
      t.match(await controlOf(stage.scene.under().paths.socket, "GET", "/browsers"), { browsers: [] });
      // With its key the page would ask for another session where a later case ends this one.
      await page.evaluate(`new Promise((done) => {
        const forgetting = indexedDB.deleteDatabase("keybearer");
        forgetting.onsuccess = () => done();
      })`);
    },
  },
  {
    kinds: ["sync"],
    title: "a console is read at once",
    async run(t, stage) {
      await stage.open("#/bill");
      await stage.press(/^read now main$/);
      const before = stage.scene.console.asked.length;
      await stage.agree();
      await stage.close();
      t.ok(stage.scene.console.asked.length > before, "the console was asked");
      t.match(stage.scene.under().logText(), /dashboard: read the console of main/);
      t.equal(stage.text(), stage.start);
    },
  },
  {
    kinds: ["trust"],
    title: "a key goes to another address once a person trusts that",
    async run(t, stage) {
      const { scene, page, press, start } = stage;
      const { state: before } = (await stage.status()).tools.find(({ name }) => name === "mover") ?? {};
      t.equal(before, "active");
      await stage.open("#/tools?tool=mover");
      await scene.under().save(start.replace("http://localhost:9/v1", "http://127.0.0.1:9/v1"));
      await page.locator("main .state[data-state=needs-trust]").first().waitFor();
      await press("trust the change");
      await stage.dialog.locator(".diff [data-kind='+']", { hasText: "127.0.0.1:9" }).waitFor();
      await stage.agree();
      await stage.close();
      await page.locator("main .state[data-state=active]").first().waitFor();
      t.match(
        (await stage.status()).tools.find(({ name }) => name === "mover"),
        { state: "active" },
      );
    },
  },
  {
    kinds: ["acknowledge"],
    title: "the owner says that a foreign row was looked at",
    async run(t, stage) {
      const alarms = async () => (await stage.status()).consoles.flatMap(({ alarms }) => alarms);
      t.equal((await alarms()).length, 1);
      await stage.open("#/overview");
      await stage.press("I have handled it");
      await stage.agree();
      await stage.close();
      t.same(await alarms(), []);
      await stage.page.getByRole("button", { name: "I have handled it" }).waitFor({ state: "detached" });
    },
  },
];
