import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { writeJournal } from "../doubles/journal.ts";
import { listen } from "../doubles/listen.ts";
import { record } from "../doubles/records.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

const HOUR = 3_600_000;

// The day must not end during a test.
process.env.TZ = zoneAtNoon();
const env = { LANG: "C.UTF-8" };

async function homeWith(t: Test, records: readonly UsageRecord[]): Promise<string> {
  const home = await newHome(t);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  writeJournal(join(home, "state", "usage"), records);
  return home;
}

const CLAUDE = "3f2a91c0-4b1d-4c55-9a0e-6f1f0c7f2b11";
const CODEX = "019aa7e2-1111-7222-8333-000000000001";
const CODEX_LATER = "019aa7e2-1111-7222-8333-000000000002";

/** Two sessions of codex that began at nearly the same time, one of Claude Code, a curl, and one of last week. */
function log(now: number): UsageRecord[] {
  const app = { project: "~/code/app", branch: "main" };
  const site = { project: "~/code/site", branch: "feature/x" };
  const claude = { tool: "claude-code", session: CLAUDE, model: "claude-opus-4-5", ...app };
  return [
    record(1, { started_at: now - 2 * HOUR, ...claude, cost_microdollars: 2_000_000 }),
    record(2, { started_at: now - HOUR, ...claude, cost_microdollars: 1_100_000 }),
    record(3, { started_at: now - 50 * 60_000, session: CODEX, ...site }),
    record(4, { started_at: now - 40 * 60_000, session: CODEX_LATER, ...app }),
    record(5, {
      started_at: now - 30 * 60_000,
      session: CODEX_LATER,
      end: "refused",
      refusal: "session-limited",
      status: 400,
      input_tokens: null,
      output_tokens: null,
      cost_microdollars: null,
      ...app,
    }),
    record(6, { started_at: now - 20 * 60_000, tool: "scripts", token: "laptop" }),
    record(7, { started_at: now - 8 * 24 * HOUR, tool: "scripts", session: "nightly-refactor" }),
  ];
}

t.test("sessions lists what each run used, the last one first", async (t) => {
  const now = Date.now();
  const today = new Date(now).toLocaleDateString("en-CA");
  const home = await homeWith(t, log(now));
  const { code, stdout, stderr } = await command(t, home, ["sessions"], { env });
  t.same({ code, stderr }, { code: 0, stderr: "" });
  t.match(stdout, /^sessions with a request in the last 24 hours\n\nsession +tool +project /);
  const rows = stdout.split("\n").filter((line) => /ago/.test(line));
  t.match(rows[0], new RegExp(`^${today}/laptop +scripts +- `));
  t.match(
    rows[1],
    /^019aa7e2-1111-7222-8333-000000000002 +codex|^019aa7e2.*… +codex/,
    "as long as is needed",
  );
  t.match(rows[3], /^3f2a91c0 +claude-code +~\/code\/app .* 2 .*\$3\.10$/);
  t.match(stdout, /\n4 sessions, 6 requests, \$3\.12\n$/);
  t.ok(stdout.split("\n").every((line) => [...line].length <= 80));
  t.match(
    (await command(t, home, ["sessions", "list", "--all"], { env })).stdout,
    /\nnightly-refactor +scripts/,
  );

  const json = JSON.parse((await command(t, home, ["sessions", "--json"])).stdout);
  t.same(Object.keys(json[0]), [
    ...["tool", "session", "project", "branch", "started_at", "last_at", "requests", "refused"],
    ...["input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"],
    ...["cost_microdollars", "unknown_cost", "tokens", "cache_share", "running"],
    ...["stopped", "limits"],
  ]);
  t.match(json[1], { session: CODEX_LATER, requests: 2, refused: 1, project: "~/code/app", running: 0 });
  const ids = async (...args: string[]) =>
    JSON.parse((await command(t, home, ["sessions", ...args, "--json"])).stdout).map(
      ({ session }: { session: string }) => session,
    );
  t.same(await ids("--tool", "cod*"), [CODEX_LATER, CODEX]);
  t.same(await ids("--project", "*/app"), [CODEX_LATER, CLAUDE]);
  t.same(await ids("--project", join(home, "code/site")), [CODEX], "a shell writes the home folder for ~");
  t.equal((await ids("--all")).length, 5);
  await saveConfig(home, "gateway: http://127.0.0.1:9/v1\ntools: { chat: { key: env:A_KEY } }\n");
  t.match(await command(t, home, ["sessions", "--tool", "nope"]), {
    code: 1,
    stderr: /there is no tool nope/,
  });
  t.match(await command(t, home, ["sessions", "--project", "nope"]), {
    code: 1,
    stderr: "there is no project nope; the projects are ~/code/app and ~/code/site\n",
  });
});

t.test("sessions show has one session, by the beginning of its id", async (t) => {
  const now = Date.now();
  const today = new Date(now).toLocaleDateString("en-CA");
  const home = await homeWith(t, [
    ...log(now),
    record(8, { started_at: now - HOUR, tool: "chat", session: CLAUDE }),
  ]);
  const show = (...args: string[]) => command(t, home, ["sessions", "show", ...args], { env });
  const { code, stdout } = await show("3f2a", "--tool", "claude-code");
  t.equal(code, 0);
  t.match(stdout, new RegExp(`^session +${CLAUDE}\ntool +claude-code\nproject +~/code/app\nbranch +main\n`));
  t.match(
    stdout,
    /\nrequests +2\ntokens +4\.7k, 40% of the input from cache\ncost +\$3\.10\n\nmodel +requests /,
  );
  t.match(stdout, /\nclaude-opus-4-5 +2 /);
  const refused = await show(CODEX_LATER);
  t.match(refused.stdout, /\nrequests +2, 1 of them refused\n/);
  t.match(refused.stdout, /\n\nsession-limited: 1 request, the session reached its limit\n$/);
  const json = JSON.parse((await show(CODEX_LATER, "--json")).stdout);
  t.match(json, {
    session: CODEX_LATER,
    models: [{ model: "gpt-5.1", requests: 2, cost_microdollars: 8130 }],
    refusals: [{ code: "session-limited", requests: 1 }],
    running: 0,
  });
  t.equal(
    json.over_time.reduce((sum: number, part: { requests: number }) => sum + part.requests, 0),
    2,
  );
  t.match((await show(`${today}/lap`)).stdout, `session     ${today}/laptop\n`);

  const several = await show("3f2a");
  t.same([several.code, several.stdout], [1, ""]);
  t.equal(
    several.stderr,
    `3f2a fits several sessions; name one with --tool:\n${CLAUDE}  chat\n${CLAUDE}  claude-code\n`,
  );
  t.match((await show("019aa7e2")).stderr, `write more of the id:\n${CODEX}  codex\n${CODEX_LATER}  codex\n`);
  t.match(await show("nope"), { code: 1, stderr: "there is no session nope → keybearer sessions\n" });
  t.match(await show("3f2a", "--tool", "codex"), { code: 1, stderr: /no session 3f2a of codex/ });
  t.match(await show(""), { code: 1, stderr: /there is no session/ });
});

t.test("without a usage log, or without requests, there are no sessions", async (t) => {
  const home = await newHome(t);
  t.match(await command(t, home, ["sessions"]), { code: 0, stdout: /there is no usage log yet/ });
  t.match(await command(t, home, ["sessions", "--json"]), { code: 0, stdout: "[]\n" });
  t.match(await command(t, home, ["sessions", "show", "x"]), {
    code: 1,
    stderr: /there is no usage log yet/,
  });
  const old = await homeWith(t, [record(1, { started_at: Date.now() - 48 * HOUR, session: "one" })]);
  t.match(await command(t, old, ["sessions"]), {
    code: 0,
    stdout: /^no session had a request in the last 24 hours; --all/,
  });
  t.match(await command(t, old, ["sessions", "--json"]), { code: 0, stdout: "[]\n" });
});

t.test("what is in flight is beside its session", async (t) => {
  const waiting: ServerResponse[] = [];
  const gateway = createServer((request, response) => {
    request.resume();
    waiting.push(response);
    gateway.emit("asked");
  });
  const { origin } = await listen(t, gateway);
  const under = await startWithOneTool(t, origin);
  const ask = async (session: string | null) => {
    const asked = once(gateway, "asked");
    const answer = fetch(`${under.url}/v1/responses`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${under.token}`,
        "content-type": "application/json",
        ...(session === null ? {} : { "x-session-id": session }),
      },
      body: JSON.stringify({ model: "gpt-5.1", input: "hello" }),
    });
    await asked;
    return answer;
  };
  const open = [ask("run-1"), ask("run-1"), ask(null)];
  while (waiting.length < 3) await once(gateway, "asked");
  const listed = JSON.parse((await command(t, under.home, ["sessions", "--json"])).stdout);
  const running = listed.map(({ session, running, requests }: Record<string, unknown>) => [
    session,
    running,
    requests,
  ]);
  t.same(
    running.find(([session]: string[]) => session === "run-1"),
    ["run-1", 2, 0],
  );
  t.match(
    running.find(([session]: string[]) => session !== "run-1"),
    [/^\d{4}-\d\d-\d\d\/[\w-]+$/, 1, 0],
  );
  t.match((await command(t, under.home, ["sessions"])).stdout, /running\n.*\n?/);
  t.match(
    (await command(t, under.home, ["sessions", "show", "run-1"])).stdout,
    /\nrequests +0, 2 more running now\n/,
  );
  for (const response of waiting) response.end("{}");
  for (const answer of await Promise.all(open)) await answer.text();
});
