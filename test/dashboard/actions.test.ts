import { EventEmitter } from "node:events";
import { chmodSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { rootCertificates } from "node:tls";
import t, { type Test } from "tap";
import type { Digits, WaitingAction } from "../../src/control/confirmation.ts";
import { type Controls, type EventsAnswer, type HeldTool, ROUTES } from "../../src/control/routes.ts";
import type { Status } from "../../src/control/status.ts";
import { advice } from "../../src/core/advice.ts";
import { systemClock } from "../../src/core/clock.ts";
import { hashToken } from "../../src/core/token.ts";
import type { Plan } from "../../src/dashboard/actions/action.ts";
import type { Action } from "../../src/dashboard/actions/actions.ts";
import { WaitingActions } from "../../src/dashboard/actions/waiting.ts";
import type { PlanAnswer, RunAnswer } from "../../src/dashboard/api.ts";
import type { Failure } from "../../src/dashboard/failure.ts";
import { advised, command } from "../doubles/command.ts";
import { type DaemonUnderTest, startUnderTest } from "../doubles/daemon-under-test.ts";
import { say, type Visit, visit } from "../doubles/dashboard-visit.ts";
import { liveKeys, prepareHome } from "../doubles/key-journey.ts";
import { controlOf } from "../doubles/mirror-journey.ts";
import { post as call, hello, startSandbox } from "../doubles/sandbox.ts";
import { atScreen } from "../doubles/screen.ts";
import { until } from "../doubles/until.ts";

const LIMITS = `    limits: { spend: $5/day, requests: 100/hour, session: { requests: 3 } }
    quota: $50
prices: { sandbox-small: { input: 1, output: 1 } }`;

interface Scene extends DaemonUnderTest {
  readonly page: Visit;
  readonly token: string;
  readonly gateway: Awaited<ReturnType<typeof startSandbox>>;
  text(): string;
  tool(name?: string): Promise<Status["tools"][number] | undefined>;
  plan(action: Action): Promise<PlanAnswer>;
  /** Plans it, confirms it as the command does if that is needed, and runs it. */
  act(action: Action): Promise<RunAnswer>;
}

async function start(t: Test, hasConsole = false): Promise<Scene> {
  const gateway = await startSandbox(t);
  const { home, token } = await prepareHome(t, gateway, LIMITS, hasConsole);
  const under = await startUnderTest(t, null, { home });
  const { paths } = under;
  const page = await visit(paths.socket);
  const plan = async (action: Action) => {
    const answer = await page.post("/api/plan", action);
    if (answer.status !== 200) throw new Error(`${answer.status} ${answer.text}`);
    return answer.json<PlanAnswer>();
  };
  return {
    ...under,
    page,
    token,
    gateway,
    plan,
    text: () => readFileSync(paths.config, "utf8"),
    async tool(name = "codex") {
      const { tools } = await controlOf<Status>(paths.socket, "GET", "/status");
      return tools.find((each) => each.name === name);
    },
    async act(action) {
      const { id, needs_digits } = await plan(action);
      const digits = needs_digits ? (await digitsFor(paths.socket, id)).digits : null;
      const ran = await page.post("/api/run", { id, digits });
      if (ran.status !== 200) throw new Error(`${ran.status} ${ran.text}`);
      return ran.json<RunAnswer>();
    },
  };
}

function digitsFor(socket: string, id: string): Promise<Digits> {
  return controlOf<Digits>(socket, "POST", `/confirm/${id}`, {});
}

function failureOf({ text }: { readonly text: string }): string {
  return (JSON.parse(text) as Failure).error;
}

t.test(
  "what narrows or keeps runs at once, and config.yaml changes by the line that was shown",
  async (t) => {
    const { plan, page, text, tool } = await start(t);
    const before = text();
    const planned = await plan({ kind: "set", tool: "codex", settings: { "limits.spend": "2/day" } });
    t.match(planned, { needs_digits: false, what: "set limits.spend=2/day of codex" });
    t.match(planned.diff.join("\n"), /^-.*spend: \$5\/day[\s\S]*^\+.*spend: \$2\/day/m);
    t.equal(text(), before, "a plan changes nothing");
    const ran = (await page.post("/api/run", { id: planned.id, digits: null })).json<RunAnswer>();
    t.equal(ran.undo, "keybearer tools set codex limits.spend=5/day");
    t.equal(text(), before.replace("$5/day", "$2/day"));
    t.equal((await tool())?.limits.find(({ limit }) => limit === "spend")?.most, 2_000_000);
    t.equal((await page.post("/api/run", { id: planned.id, digits: null })).status, 409, "it runs once");
  },
);

t.test("the command that undoes a change does so", async (t) => {
  const { act, text, home } = await start(t);
  const before = text();
  const type = async (words: string[]) => t.equal((await command(t, home, words)).code, 0, words.join(" "));
  const lower = { kind: "set", tool: "codex", settings: { "limits.spend": "2/day", quota: "10" } } as const;
  const lowered = await act(lower);
  t.not(text(), before);
  const old = "limits.spend=5/day quota=50";
  await type(advised(t, lowered.undo ?? "", advice.setTool("codex", old)));
  for (const action of [
    { kind: "set", tool: "codex", settings: { expires: "2031-01-01" } },
    { kind: "disable", tool: "codex" },
  ] as const) {
    const { undo } = await act(action);
    t.not(text(), before, action.kind);
    await type((undo ?? "").split(" ").slice(1));
  }
  t.equal(text().replace(/^ +enabled: true\n/m, ""), before);
});

t.test("what widens needs the digits of that action, from a terminal", async (t) => {
  const { plan, page, paths, text } = await start(t);
  const before = text();
  const raise = await plan({ kind: "set", tool: "codex", settings: { "limits.spend": "500/day" } });
  const other = await plan({ kind: "set", tool: "codex", settings: { quota: "" } });
  t.ok(raise.needs_digits && other.needs_digits);
  const run = (id: string, digits: string | null) => page.post("/api/run", { id, digits });
  const without = await run(raise.id, null);
  t.equal(without.status, 403);
  t.match(failureOf(without), /six digits from a terminal → keybearer confirm/);
  t.equal((await run(raise.id, "000000")).status, 403, "nobody has issued digits yet");
  const { digits: forOther } = await digitsFor(paths.socket, other.id);
  const { digits } = await digitsFor(paths.socket, raise.id);
  t.match(digits, /^\d{6}$/);
  const wrong = forOther === digits ? "999999" : forOther;
  t.match(failureOf(await run(raise.id, wrong)), /not the digits for this action; 2 more tries/);
  t.equal(text(), before);
  t.equal((await run(raise.id, digits)).status, 200);
  t.equal(text(), before.replace("$5/day", "$500/day"));
});

t.test("a program with a token needs both, so revoking its last token needs digits", async (t) => {
  const { act, plan, save, text } = await start(t);
  await save(
    text().replace(/token: (sha256:\w+)/, 'token: { name: desk, hash: "$1" }\n    process: /usr/bin/true'),
  );
  t.match(await plan({ kind: "revoke", tool: "codex", name: "desk" }), { needs_digits: true });
  await act({ kind: "token", tool: "codex", name: "laptop" });
  t.match(await plan({ kind: "revoke", tool: "codex", name: "desk" }), { needs_digits: false });
});

t.test("of two runs of one plan one is too late", async (t) => {
  const { plan, page } = await start(t);
  const { id } = await plan({ kind: "disable", tool: "codex" });
  const run = () => page.post("/api/run", { id, digits: null });
  const answers = await Promise.all([run(), run()]);
  t.same(answers.map(({ status }) => status).sort(), [200, 409]);
});

t.test("after three wrong digits the action is gone, also with the right ones", async (t) => {
  const { plan, page, paths, text } = await start(t);
  const before = text();
  const { id } = await plan({ kind: "token", tool: "codex", name: "laptop" });
  const { digits } = await digitsFor(paths.socket, id);
  const wrong = digits === "111111" ? "222222" : "111111";
  const statuses: number[] = [];
  for (const typed of [wrong, wrong, wrong, digits])
    statuses.push((await page.post("/api/run", { id, digits: typed })).status);
  t.same(statuses, [403, 403, 403, 409]);
  t.equal(text(), before);
});

t.test("another page cannot run what one page asked for", async (t) => {
  const { plan, paths, text } = await start(t);
  const before = text();
  const { id } = await plan({ kind: "disable", tool: "codex" });
  const other = await visit(paths.socket);
  t.equal((await other.post("/api/run", { id, digits: null })).status, 409);
  t.equal(text(), before);
});

t.test("a config.yaml that changed after the plan is left as it is", async (t) => {
  const { plan, page, save, text } = await start(t);
  const { id } = await plan({ kind: "disable", tool: "codex" });
  const edited = `${text()}# mine\n`;
  await save(edited);
  const ran = await page.post("/api/run", { id, digits: null });
  t.equal(ran.status, 409);
  t.match(failureOf(ran), /changed by something else meanwhile/);
  t.equal(text(), edited);
});

t.test("nothing is planned from a config.yaml that is not in force", async (t) => {
  const { page, paths, text, tool } = await start(t);
  const before = text();
  // It has a key in it, so keybearer does not load it.
  chmodSync(paths.config, 0o644);
  const planned = await page.post("/api/plan", { kind: "disable", tool: "codex" });
  t.match(planned, { status: 409, text: /config\.yaml is not in force, so nothing was changed: / });
  t.equal(text(), before);
  t.equal((await tool())?.state, "active");
});

t.test("a change that is saved and does not come into force is no success", async (t) => {
  const { page, plan, save, text, tool, home } = await start(t);
  const file = join(home, "company.pem");
  writeFileSync(file, rootCertificates[0] ?? "");
  await save(text().replace("tools:", `    ca_file: ${file}\ntools:`));
  const { id } = await plan({ kind: "disable", tool: "codex" });
  const before = await tool();
  rmSync(file);
  const ran = await page.post("/api/run", { id, digits: null });
  t.equal(ran.status, 409);
  t.match(failureOf(ran), /was saved, but the configuration before stays in force: .*company\.pem/);
  t.match(text(), "enabled: false");
  t.equal((await tool())?.state, before?.state);
  t.not(before?.state, "disabled");
});

t.test("a command that would not undo a change is not shown as one that does", async (t) => {
  const { plan } = await start(t);
  const settings = { "limits.session": "", quota: "10" };
  t.equal((await plan({ kind: "set", tool: "codex", settings })).undo, null);
});

t.test("a page cannot write more lines into the question in the terminal", async (t) => {
  const { page, text } = await start(t);
  const before = text();
  for (const process of ["/bin/x\n\nthe dashboard asks: stop codex", "/bin/x\u001b[2J", "/bin/\u202ex"]) {
    const planned = await page.post("/api/plan", { kind: "set", tool: "codex", settings: { process } });
    t.equal(planned.status, 400, JSON.stringify(process));
  }
  t.equal(text(), before);
});

t.test("what is held is trusted as it was shown, once", async (t) => {
  const { plan, page, paths, save, text, gateway, tool } = await start(t);
  await save(text().replace(gateway.baseUrl, "https://other.example.com/v1"));
  const held = () => controlOf<HeldTool[]>(paths.socket, "GET", "/held/codex");
  await until("the key is held", async () => (await held()).length > 0);
  const { id, diff, needs_digits } = await plan({ kind: "trust", name: "codex" });
  t.ok(needs_digits);
  t.match(diff.join("\n"), /^- .*\n\+ https:\/\/other\.example\.com/m);
  const late = await plan({ kind: "trust", name: "codex" });
  const run = async (plan: string) =>
    page.post("/api/run", { id: plan, digits: (await digitsFor(paths.socket, plan)).digits });
  t.equal((await run(id)).status, 200);
  t.same(await held(), []);
  t.equal((await tool())?.state, "active");
  const again = await run(late.id);
  t.equal(again.status, 409);
  t.match(failureOf(again), /nothing of codex is held any more/);
});

t.test("settings that are wrong are refused in the words of the command", async (t) => {
  const { page, text } = await start(t);
  const before = text();
  for (const [settings, words] of [
    [{ "limits.spend": "lots" }, /tools\.codex\.limits\.spend: /],
    [{ key: "sk-mine-0123456789" }, /a key is not a setting of tools set/],
    [{ "token.hash": "x" }, /a token is not a setting/],
    [{ nonsense: "1" }, /tools\.codex\.nonsense: /],
    [{ "a=b": "1" }, /tools\.codex\.a: |name=value/],
  ] as const) {
    const planned = await page.post("/api/plan", { kind: "set", tool: "codex", settings });
    t.ok(planned.status === 400 || planned.status === 409, `${planned.status} ${planned.text}`);
    t.match(failureOf(planned), words);
    t.notMatch(planned.text, /sk-mine/);
  }
  t.equal(text(), before);
});

t.test("keybearer confirm names the action and prints a new token, which no page sees", async (t) => {
  const { plan, page, home, text, logText } = await start(t);
  const { id, diff } = await plan({ kind: "token", tool: "codex", name: "laptop" });
  const person = atScreen(t, home, [...advice.confirm().split(" ").slice(1)]);
  await person.says(/the dashboard asks, .* ago: make a token laptop for codex/);
  await person.says(/did you ask for this\?/);
  person.type("y\r");
  const [, digits = ""] = await person.says(/within two minutes: (\d{6})/);
  const ran = await page.post("/api/run", { id, digits });
  t.equal(ran.status, 200, ran.text);
  const { code, stdout } = await person.ended;
  t.equal(code, 0, stdout);
  const [made = ""] = /kb_[\w-]{49}/.exec(stdout) ?? [];
  t.ok(text().includes(hashToken(made)), "config.yaml has its hash");
  for (const seen of [ran.text, diff.join("\n"), logText(), text()]) t.notOk(seen.includes(made));
});

t.test("keybearer confirm is for a person, and says when nothing waits", async (t) => {
  const { home, plan } = await start(t);
  const piped = await command(t, home, ["confirm"]);
  t.match(piped, { code: 2, stderr: /needs a person at a terminal/ });
  const idle = atScreen(t, home, advised(t, piped.stderr, advice.confirm()));
  t.match(await idle.ended, { code: 1, stdout: /no page of the dashboard waits/ });
  await plan({ kind: "enable", tool: "codex" });
  t.same(
    await controlOf<WaitingAction[]>(`${home}/run/control.sock`, "GET", "/confirmations"),
    [],
    "it keeps",
  );
  await plan({ kind: "give", tool: "codex", limit: "spend", amount: 1_000_000 });
  const declined = atScreen(t, home, ["confirm"]);
  await declined.says(/give codex \$1\.00 more/);
  declined.type("n\r");
  t.equal((await declined.ended).code, 1);
});

t.test("of several actions a person confirms the one they asked for", async (t) => {
  const { plan, page, home } = await start(t);
  const mine = await plan({ kind: "give", tool: "codex", limit: "spend", amount: 1_000_000 });
  await plan({ kind: "give", tool: "codex", limit: "spend", amount: 999_000_000 });
  const person = atScreen(t, home, ["confirm"]);
  await person.says(/2 actions wait; the newest comes first/);
  await person.says(/give codex \$999\.00 more/);
  person.type("n\r");
  await person.says(/give codex \$1\.00 more/);
  person.type("y\r");
  const [, digits = ""] = await person.says(/within two minutes: (\d{6})/);
  t.equal((await page.post("/api/run", { id: mine.id, digits })).status, 200);
  t.equal((await person.ended).code, 0);
});

t.test("keybearer confirm says what became of an action when keybearer stops", async (t) => {
  const { plan, home, daemon } = await start(t);
  await plan({ kind: "give", tool: "codex", limit: "spend", amount: 1_000_000 });
  const person = atScreen(t, home, ["confirm"]);
  await person.says(/did you ask for this\?/);
  person.type("y\r");
  await person.says(/within two minutes/);
  await daemon.stop(0);
  t.match(await person.ended, { code: 1, stdout: /nothing was changed: keybearer stopped/ });
});

const PLAN: Plan = {
  what: "make a token",
  change: "widens",
  diff: [],
  undo: null,
  run: () => Promise.reject(new Error("it is not run")),
};

t.test("an action that nobody types digits for ends by itself", async (t) => {
  const waiting = new WaitingActions(systemClock, 1);
  const id = waiting.add(PLAN, "page");
  const ended = waiting.ended(id);
  t.not(waiting.confirm(id), null);
  t.match(await ended, { state: "dropped", what: /not typed within two minutes/, token: null });
});

t.test(
  "when keybearer confirm is left its digits are void, because a token would be printed nowhere",
  (t) => {
    const waiting = new WaitingActions(systemClock);
    const id = waiting.add(PLAN, "page");
    const digits = waiting.confirm(id)?.digits ?? "";
    const response = new EventEmitter();
    const input = { name: id, body: null, peer: "", res: response as unknown as ServerResponse, owner: null };
    ROUTES["GET /confirmed/:name"]?.({ confirmations: waiting } as unknown as Controls, input);
    response.emit("close");
    t.throws(() => waiting.take(id, "page", digits), { code: "digits-missing" });
    t.equal(waiting.take(id, "page", waiting.confirm(id)?.digits ?? "").plan, PLAN);
    t.end();
  },
);

t.test("an allowance is given and taken back, and a session is stopped, allowed and lifted", async (t) => {
  const { act, tool, url, token } = await start(t);
  const spend = async () => (await tool())?.limits.find(({ limit }) => limit === "spend");
  await act({ kind: "give", tool: "codex", limit: "spend", amount: 1_500_000 });
  t.match(await spend(), { most: 6_500_000, extra: 1_500_000 });
  await act({ kind: "take-back", tool: "codex" });
  t.match(await spend(), { most: 5_000_000, extra: 0 });

  const inSession = async () => {
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        "x-claude-code-session-id": "run-1",
      },
      body: JSON.stringify(hello()),
    });
    await answer.text();
    return answer.headers.get("x-keybearer-refusal") ?? answer.status;
  };
  t.equal(await inSession(), 200);
  const { undo } = await act({ kind: "stop-session", tool: "codex", session: "run-1" });
  t.equal(undo, advice.allowSession("run-1", "codex"));
  t.equal(await inSession(), "session-stopped");
  await act({ kind: "allow-session", tool: "codex", session: "run-1" });
  t.same([await inSession(), await inSession()], [200, 200]);
  t.equal(await inSession(), "session-limited");
  await act({ kind: "give-session", tool: "codex", session: "run-1", limit: "requests", amount: 5 });
  t.equal(await inSession(), 200);
});

t.test("a key is rotated, and a tool is made with a key of the console", async (t) => {
  const { act, plan, gateway, text, tool, url, token, paths, page } = await start(t, true);
  const before = (await tool())?.key;
  t.match((await plan({ kind: "rotate", tool: "codex" })).what, /move it from config\.yaml to a file/);
  await act({ kind: "rotate", tool: "codex" });
  t.match(text(), /key: "?file:/);
  t.not((await tool())?.key, before);
  t.equal((await call(`${url}/v1/chat/completions`, token, hello())).status, 200);
  t.equal(liveKeys(gateway).length, 1);

  const unchanged = text();
  await t.rejects(act({ kind: "create", tool: "zed", gateway: "main", group: "" }), /409.*default, coding/);
  t.equal(text(), unchanged, "without a key there is no tool");
  await t.rejects(act({ kind: "create", tool: "zed", gateway: "main", group: "nosuch" }), /409/);
  t.equal(text(), unchanged, "and no group that was added for it");
  const zed = { kind: "create", tool: "zed", gateway: "main", group: "default" } as const;
  const { id, diff, needs_digits } = await plan(zed);
  t.ok(needs_digits);
  t.match(diff.join("\n"), /^\+.*zed/m);
  const { digits } = await digitsFor(paths.socket, id);
  const ended = controlOf<{ token: string }>(paths.socket, "GET", `/confirmed/${id}`);
  const ran = await page.post("/api/run", { id, digits });
  t.equal(ran.status, 200, ran.text);
  const { token: made } = await ended;
  t.equal((await call(`${url}/v1/chat/completions`, made, hello())).status, 200);
  t.equal(liveKeys(gateway).length, 2);
  t.match(text(), /zed/);
  await act({ kind: "token", tool: "zed", name: "laptop" });
  t.equal((await tool("zed"))?.tokens, 2);
  await act({ kind: "revoke", tool: "zed", name: "laptop" });
  t.equal((await tool("zed"))?.tokens, 1);
});

t.test(
  "another site, another name of the host and a request without a session can plan and run nothing",
  async (t) => {
    const { page, plan, text } = await start(t);
    const before = text();
    const { id } = await plan({ kind: "disable", tool: "codex" });
    const host = new URL(page.url).host;
    const good = { authorization: `Bearer ${page.token}`, "content-type": "application/json" };
    const bodies = {
      "/api/plan": JSON.stringify({ kind: "disable", tool: "codex" }),
      "/api/run": JSON.stringify({ id, digits: null }),
    };
    const refused: readonly (readonly [number, Record<string, string>])[] = [
      [403, { ...good, origin: "http://evil.example" }],
      [403, { ...good, "sec-fetch-site": "cross-site" }],
      [403, { ...good, "sec-fetch-site": "same-site" }],
      [421, { ...good, host: "evil.example" }],
      [401, { "content-type": "application/json" }],
      [415, { ...good, "content-type": "text/plain" }],
    ];
    for (const [path, body] of Object.entries(bodies))
      for (const [status, headers] of refused) {
        const answer = await say(page.url, path, { method: "POST", headers: { host, ...headers }, body });
        t.equal(answer.status, status, `${path} ${JSON.stringify(Object.keys(headers))}`);
      }
    t.equal(text(), before);
    t.equal((await page.post("/api/run", { id, digits: null })).status, 200, "the page itself can");
  },
);

t.test("a page gets the events that keybearer events lists", async (t) => {
  const { page, save, text, paths } = await start(t);
  await save(`${text()}nonsense: true\n`);
  const listed = () => controlOf<EventsAnswer>(paths.socket, "GET", "/events");
  await until("the rejected file is an event", async () => (await listed()).events.length > 0);
  t.same((await page.get("/api/history")).json<EventsAnswer>(), await listed());
});
