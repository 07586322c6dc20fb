import { readFileSync } from "node:fs";
import type { Test } from "tap";
import type { DashboardSetup } from "../doubles/dashboard-setup.ts";
import { openDashboard, trade, visit } from "../doubles/dashboard-visit.ts";
import { until } from "../doubles/until.ts";
import { type Attack, attackScript } from "../threats/page-attacks.ts";

const DISABLE = { kind: "disable", tool: "codex" };

/** What a page of elsewhere does that has got hold of a session and of a code. */
function attacksWith(session: string, code: string): readonly Attack[] {
  const bearer = `headers: { authorization: "Bearer ${session}" }`;
  const body = (value: unknown) => JSON.stringify(JSON.stringify(value));
  const fetched = (path: string, init: string) =>
    `const answer = await fetch(at("${path}"), { ${init} }); return answer.type === "opaque" ? "" : answer.text();`;
  const loaded = (make: string) => `return new Promise((done) => {
    const element = ${make};
    element.onload = () => done("");
    element.onerror = () => done("");
    document.body.append(element);
  });`;
  const post = `method: "POST", mode: "no-cors"`;
  return [
    { name: "now", code: fetched("/api/now", bearer) },
    { name: "now-bare", code: fetched("/api/now", `mode: "no-cors", credentials: "include"`) },
    { name: "tools", code: fetched("/api/mirror", bearer) },
    { name: "tool", code: fetched("/api/tools/codex", bearer) },
    { name: "trade", code: fetched("/api/session", `${post}, body: ${body({ code })}`) },
    { name: "trade-cors", code: fetched("/api/session", `method: "POST", body: ${body({ code })}`) },
    {
      name: "trade-json",
      code: fetched(
        "/api/session",
        `method: "POST", headers: { "content-type": "application/json" }, body: ${body({ code })}`,
      ),
    },
    { name: "plan", code: fetched("/api/plan", `${post}, body: ${body(DISABLE)}`) },
    {
      name: "plan-json",
      code: fetched(
        "/api/plan",
        `method: "POST", headers: { authorization: "Bearer ${session}", "content-type": "application/json" }, body: ${body(DISABLE)}`,
      ),
    },
    { name: "run", code: fetched("/api/run", `${post}, body: ${body({ id: "x", digits: "000000" })}`) },
    { name: "challenge", code: fetched("/api/challenge", `${post}, body: ${body({ public_key: "x" })}`) },
    {
      name: "challenge-json",
      code: fetched(
        "/api/challenge",
        `method: "POST", headers: { "content-type": "application/json" }, body: ${body({ public_key: "x" })}`,
      ),
    },
    {
      name: "beacon",
      code: `navigator.sendBeacon(at("/api/plan"), new Blob([${body(DISABLE)}])); return "";`,
    },
    {
      name: "script",
      code: loaded(`Object.assign(document.createElement("script"), { src: at("/main.js") })`),
    },
    {
      name: "style",
      code: loaded(
        `Object.assign(document.createElement("link"), { rel: "stylesheet", href: at("/page.css") })`,
      ),
    },
    { name: "img", code: loaded(`Object.assign(new Image(), { src: at("/") })`) },
    { name: "frame", code: loaded(`Object.assign(document.createElement("iframe"), { src: at("/") })`) },
    {
      name: "events",
      code: `return new Promise((done) => {
        const source = new EventSource(at("/api/events"));
        source.onopen = () => done("open");
        source.onerror = () => { source.close(); done(""); };
      });`,
    },
  ];
}

export async function attacked(t: Test, scene: DashboardSetup): Promise<void> {
  const { socket, config } = scene.under().paths;
  const { token } = await visit(socket);
  const { url, code } = await openDashboard(socket);
  const attacks = attacksWith(token, code);
  for (const from of [
    "http://evil.test",
    // To the browser these are the same site as the dashboard, though not its origin.
    `http://localhost:${scene.port - 1}`,
    `http://127.0.0.1:${scene.port - 1}`,
  ]) {
    const first = scene.tap.connections.length;
    const page = await scene.browser.newPage();
    await page.goto(`${from}/page`);
    const read: Record<string, string> = await page.evaluate(attackScript(attacks, scene.origin, null));
    t.strictSame(
      Object.entries(read).filter(([, text]) => text !== ""),
      [],
      `${from} reads nothing`,
    );
    const taps = () => scene.tap.connections.slice(first);
    await until("every attack was sent", () =>
      attacks.every(({ name }) => taps().some((one) => one.sent().includes(`attack=${name}.`))),
    );
    const sent = taps().flatMap((one) => one.sent().match(/[A-Z]+ \S+ HTTP\/1\.1\r/g) ?? []);
    const statuses = () => taps().flatMap((one) => one.received().match(/HTTP\/1\.1 \d+/g) ?? []);
    await until("every one is answered", () => statuses().length >= sent.length);
    t.strictSame([...new Set(statuses())], ["HTTP/1.1 403"]);
    t.notMatch(
      taps()
        .map((one) => one.received())
        .join(),
      /access-control-|codex|writer/i,
    );
    await page.close();
  }
  t.equal(readFileSync(config, "utf8"), scene.config, "no tool was switched");
  t.equal((await trade(url, code)).status, 200, "and the code was not spent");
}

/** The page came from the attacker's address, before its name was turned to 127.0.0.1: all this is same-origin. */
export async function rebound(t: Test, scene: DashboardSetup): Promise<void> {
  const { token } = await visit(scene.under().paths.socket);
  const page = await scene.browser.newPage();
  await page.goto(`http://rebind.test:${scene.port}/page`);
  const answers: { status: number; text: string }[] = await page.evaluate(`Promise.all(
    ["/", "/main.js", "/api/now", "/api/mirror", "/api/records", "/api/plan", "/api/run", "/api/challenge"].map(async (path) => {
      const isPost = ["/api/plan", "/api/run", "/api/challenge"].includes(path);
      const headers = { authorization: "Bearer ${token}", "content-type": "application/json" };
      const answer = await fetch(path, isPost ? { method: "POST", headers, body: '{"kind":"sync","gateway":"main"}' } : { headers });
      return { status: answer.status, text: await answer.text() };
    }))`);
  t.equal(answers.length, 8);
  for (const { status, text } of answers) {
    t.equal(status, 421);
    t.notMatch(text, /codex|writer|<html/);
  }
  t.equal((await page.goto(`http://rebind.test:${scene.port}/`))?.status(), 421, "to visit it is no better");
  await page.close();
}
