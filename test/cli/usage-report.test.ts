import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { parseQuestion, type ReportOptions } from "../../src/cli/usage/report.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { failureText } from "../doubles/failure-text.ts";
import { writeJournal } from "../doubles/journal.ts";
import { record } from "../doubles/records.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

const HOUR = 3_600_000;

async function homeWith(t: Test, records: readonly UsageRecord[]): Promise<string> {
  const home = await newHome(t);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  writeJournal(join(home, "state", "usage"), records);
  return home;
}

// "today" must not end during a test.
process.env.TZ = zoneAtNoon();
const zone = { LANG: "C.UTF-8" };

t.test("usage shows the last seven days by tool, without a daemon", async (t) => {
  const now = Date.now();
  const home = await homeWith(t, [
    record(1, { started_at: now - 60_000 }),
    record(2, { started_at: now - 60_000, tool: "claude-code", cost_microdollars: 2_000_000 }),
    record(3, { started_at: now - 3 * 24 * HOUR }),
    record(4, { started_at: now - 30 * 24 * HOUR }),
  ]);
  const { code, stdout, stderr } = await command(t, home, ["usage"], { env: zone });
  t.same({ code, stderr }, { code: 0, stderr: "" });
  t.match(stdout, /^usage since [A-Z][a-z]{2} \d{4}-\d\d-\d\d 00:00, by tool\n/);
  t.match(stdout, /^tool +requests +input .* today +by day$/m);
  t.match(stdout, /^claude-code +1 .* \$2\.00 +\$2\.00 /m);
  t.match(stdout, /^codex +2 .* \$0\.016 +\$0\.0081 /m);
  t.match(
    stdout,
    /^3 requests, \$2\.02\n7\.0k tokens: 3\.6k input, 2\.4k read from cache, 1\.0k output$/m,
    "what is older than a week is not in it",
  );
  t.ok(stdout.split("\n").every((line) => [...line].length <= 80));
  const all = await command(t, home, ["usage", "--since", "all"], { env: zone });
  t.match(all.stdout, /^all usage, by tool\n[\s\S]*^4 requests, /m);
});

t.test("--json has a shape that programs can rely on, and exact numbers", async (t) => {
  const at = Date.UTC(2026, 10, 1, 10, 7);
  const home = await homeWith(t, [
    record(1, { started_at: at }),
    record(2, { started_at: at + HOUR, first_byte_at: at + HOUR + 1000 }),
    record(3, {
      started_at: at + HOUR,
      tool: null,
      model: null,
      model_answered: null,
      end: "refused",
      status: 401,
    }),
  ]);
  const args = ["usage", "--by", "tool,day", "--since", "2026-11-01", "--until", "2026-11-01", "--json"];
  const zone = process.env.TZ;
  t.teardown(() => {
    process.env.TZ = zone;
  });
  process.env.TZ = "Europe/Berlin";
  const { code, stdout } = await command(t, home, args);
  t.equal(code, 0);
  const report = JSON.parse(stdout);
  const numbers = {
    requests: 2,
    refused: 0,
    failed: 0,
    client_left: 0,
    interrupted: 0,
    unmetered: 0,
    unpriced: 0,
    input_tokens: 2400,
    cache_read_tokens: 1600,
    cache_write_tokens: 0,
    output_tokens: 684,
    reasoning_tokens: 256,
    list_microdollars: 10_840,
    cost_microdollars: 16_260,
    billed_microdollars: null,
    billed_requests: 0,
    cache_share: 0.4,
    first_byte_p50_ms: 878,
    first_byte_p95_ms: 1000,
  };
  t.same(Object.keys(report), [
    ...["since", "until", "zone", "by", "rows", "total", "running"],
    ...["first_byte_exact", "models_without_price", "other_models"],
  ]);
  t.same(report.rows[0], { tool: "codex", day: "2026-11-01", ...numbers });
  t.match(report.rows[1], { tool: null, requests: 1, refused: 1 });
  t.match(report, {
    since: Date.UTC(2026, 9, 31, 23),
    until: Date.UTC(2026, 10, 1, 23),
    zone: "Europe/Berlin",
    by: ["tool", "day"],
    running: 0,
    first_byte_exact: true,
    models_without_price: [],
  });
  t.equal(report.total.requests, 3);
});

t.test("--csv has one line per row, and no name in it can run as a formula", async (t) => {
  const home = await homeWith(t, [record(1, { model: '=HYPERLINK("http://evil.example")' }), record(2)]);
  const { code, stdout } = await command(t, home, ["usage", "--by", "model", "--since", "all", "--csv"]);
  t.equal(code, 0);
  const [head, first, second, rest] = stdout.split("\r\n");
  t.match(
    head,
    /^model,requests,refused,.*,cache_share,first_byte_p50_ms,first_byte_p95_ms,list_dollars,cost_dollars,billed_dollars$/,
  );
  t.match([first, second].sort()[1], /,878,878,0\.00542,0\.00813,$/);
  t.match([first, second].sort()[0], `"'=HYPERLINK(""http://evil.example"")",1,`);
  t.match([first, second].sort()[1], "gpt-5.1,1,0,");
  t.equal(rest, "");
});

t.test("filters select records, and a filter that matches nothing is reported", async (t) => {
  const now = Date.now();
  const home = await homeWith(t, [
    record(1, { started_at: now - 1000 }),
    record(2, { started_at: now - 1000, tool: "chat", model: "claude-opus-4-5" }),
  ]);
  const args = ["usage", "--json", "--model", "claude-*", "--model", "gpt-*", "--tool", "ch*"];
  t.match(JSON.parse((await command(t, home, args)).stdout), {
    rows: [{ tool: "chat", requests: 1 }],
    total: { requests: 1 },
  });
  const none = await command(t, home, ["usage", "--model", "gpt-6"], { env: zone });
  t.equal(none.code, 0);
  t.match(
    none.stdout,
    /, by tool, model gpt-6\n\nnothing was recorded in this period; the last record is from /,
  );
});

t.test("an unknown tool is refused, and one of the log or of config.yaml is not", async (t) => {
  const home = await homeWith(t, [record(1, { started_at: Date.now() - 1000 })]);
  await saveConfig(home, "gateway: http://127.0.0.1:9/v1\ntools: { chat: { key: env:A_KEY } }\n");
  const usage = (...args: string[]) => command(t, home, ["usage", ...args]);
  const refusal = { code: 1, stdout: "", stderr: "there is no tool nope; the tools are chat and codex\n" };
  for (const args of [
    ["--tool", "nope"],
    ["--tool", "codex", "--tool", "nope", "--json"],
  ])
    t.match(await usage(...args), refusal);
  t.match(await usage("export", "--tool", "nope"), refusal);
  const file = join(home, "out.json");
  t.equal((await usage("export", "--tool", "nope", "-o", file)).code, 1);
  t.notOk(existsSync(file));
  t.match(await usage("--tool", "n*"), { code: 1, stderr: /there is no tool n\*/ });
  for (const name of ["codex", "chat", "c*", "*"]) t.equal((await usage("--tool", name)).code, 0, name);
  await saveConfig(home, "tools: [");
  t.equal((await usage("--tool", "nope")).code, 0, "a broken config.yaml may have it");
});

t.test("every machine is in the reports, and this one has its name from config.yaml", async (t) => {
  const at = Date.now() - 1000;
  const newest = record(3, { started_at: at + 2, machine: "desk" });
  const home = await homeWith(t, [
    record(1, { started_at: at }),
    record(2, { started_at: at + 1, machine: "desk" }),
    newest,
  ]);
  const usage = (...args: string[]) => command(t, home, ["usage", ...args]);
  const rows = async (...args: string[]) =>
    JSON.parse((await usage("--json", "--by", "machine", ...args)).stdout).rows.map(
      (row: { machine: string | null; requests: number }) => [row.machine, row.requests],
    );
  const ids = async (...args: string[]) => JSON.parse((await usage("export", ...args)).stdout).length;
  t.strictSame(await rows(), [
    ["desk", 2],
    [null, 1],
  ]);
  t.match((await usage("--by", "machine")).stdout, /\ndesk +2 .*\nthis machine +1 /);
  t.equal(await ids("--machine", "this machine"), 1);
  t.match(await usage("show", "last", "--json"), { stdout: /"machine": null/ }, "the last of this machine");
  t.match(await usage("show", newest.id), { stdout: /\nmachine +desk\n/ });
  t.notMatch((await usage("show", "last")).stdout, /machine/);

  const shared = "shared: { store: rediss://store.example.net, machine: laptop }";
  await saveConfig(home, `gateway: http://127.0.0.1:9/v1\ntools: { codex: { key: env:A_KEY } }\n${shared}\n`);
  t.strictSame(await rows(), [
    ["desk", 2],
    ["laptop", 1],
  ]);
  t.strictSame(await rows("--machine", "lap*"), [["laptop", 1]]);
  t.strictSame(await rows("--machine", "desk", "--tool", "codex"), [["desk", 2]]);
  t.equal(await ids("--machine", "laptop"), 1);
  t.equal(await ids("--machine", "*"), 3);
  t.match((await usage("--machine", "laptop")).stdout, /, by tool, machine laptop\n/);
  t.match((await usage("show", "last")).stdout, /\nmachine +laptop\n/);
  const unknown = {
    code: 1,
    stdout: "",
    stderr: "there is no machine nope; the machines are desk and laptop\n",
  };
  t.match(await usage("--machine", "nope"), unknown);
  t.match(await usage("export", "--machine", "nope"), unknown);
});

const RUN = "3f2a91c0-4b1d-4c55-9a0e-6f1f0c7f2b11";
const OTHER_RUN = "3f2a91c0-4cff-4c55-9a0e-6f1f0c7f2b12";

t.test("projects, branches, sessions and tokens: every report adds up to the same total", async (t) => {
  const now = Date.now();
  const home = await homeWith(t, [
    record(1, {
      started_at: now - 4000,
      project: "~/code/app",
      branch: "main",
      session: RUN,
      token: "laptop",
    }),
    record(2, {
      started_at: now - 3000,
      project: "~/code/app",
      branch: "fix",
      session: OTHER_RUN,
      token: "laptop",
    }),
    record(3, { started_at: now - 2000, project: "~/code/site", session: "nightly-refactor" }),
    record(4, { started_at: now - 1000, token: "ci" }),
  ]);
  const usage = (...args: string[]) => command(t, home, ["usage", ...args], { env: zone });
  const rows = async (by: string, ...args: string[]) => {
    const { rows, total } = JSON.parse((await usage("--json", "--by", by, ...args)).stdout);
    const sum = rows.reduce((sum: number, row: { requests: number }) => sum + row.requests, 0);
    t.equal(sum, total.requests, by);
    t.equal(total.requests, args.length > 0 ? sum : 4, by);
    return rows.map((row: Record<string, unknown>) => row[by] ?? null).sort();
  };
  t.same(await rows("project"), ["~/code/app", "~/code/site", null].sort());
  t.same(await rows("branch"), ["fix", "main", null].sort());
  t.same(await rows("session"), [OTHER_RUN, RUN, "nightly-refactor", null].sort());
  t.same(await rows("token"), ["ci", "laptop", null].sort());
  for (const by of ["tool", "project,branch", "session,day", "token,session"]) await rows(by);
  t.same(await rows("session", "--project", "*/app"), [RUN, OTHER_RUN].sort());
  t.same(await rows("session", "--project", `${home}/code/site`), ["nightly-refactor"]);
  t.same(await rows("project", "--session", "nightly"), ["~/code/site"]);
  t.same(await rows("session", "--session", "3f2a*"), [RUN, OTHER_RUN].sort());
  t.same(await rows("session", "--session", RUN, "--session", "nightly"), [RUN, "nightly-refactor"].sort());
  const today = new Date(now).toLocaleDateString("en-CA");
  t.same(await rows("token", "--session", `${today}/ci`), ["ci"]);

  const text = (await usage("--by", "session")).stdout;
  t.match(text, /\n3f2a91c0-4b +1 /, "no shorter than what tells two apart");
  t.match(text, /\n\(no session\) +1 .*\n/);
  t.match((await usage("--by", "session", "--session", RUN)).stdout, /\nsession .*\n3f2a91c0 +1 /);
  t.match((await usage("--by", "project")).stdout, /\n~\/code\/app +2 [\s\S]*\n\(no project\) +1 /);
  t.match((await usage("--project", "*/app")).stdout, /, by tool, project \*\/app\n/);
  t.match((await usage("--by", "session", "--csv")).stdout, `\r\n${RUN},1,`);
  t.match(
    (await usage("export", "--session", "nightly", "--csv")).stdout,
    /,nightly-refactor,~\/code\/site,,,/,
  );
  t.equal(JSON.parse((await usage("export", "--project", "*/app")).stdout).length, 2);
  const [newest] = JSON.parse((await usage("export", "--session", RUN)).stdout);
  t.match(
    (await usage("show", newest.id)).stdout,
    new RegExp(`\ntoken +laptop\nsession +${RUN}\nproject +~/code/app, branch main\n`),
  );

  t.match(await usage("--session", "3f2a"), {
    code: 1,
    stderr: `several sessions begin with 3f2a: ${RUN}, ${OTHER_RUN}. write more, or 3f2a*\n`,
  });
  t.match(await usage("--session", "nope"), {
    code: 1,
    stderr: "there is no session nope → keybearer sessions\n",
  });
  t.match(await usage("export", "--session", ""), { code: 1, stderr: /there is no session/ });
  t.match(await usage("--project", "nope"), {
    code: 1,
    stderr: /the projects are ~\/code\/app and ~\/code\/site/,
  });
  const none = await homeWith(t, [record(1)]);
  t.match(await command(t, none, ["usage", "--project", "x"]), { code: 1, stderr: /has no projects yet/ });
});

t.test("--today has the day beside other days, and the month's forecast", async (t) => {
  const now = Date.now();
  const home = await homeWith(t, [
    record(1, { started_at: now - 1000, cost_microdollars: 3_100_000 }),
    record(2, { started_at: now - 24 * HOUR - 1000, cost_microdollars: 2_200_000 }),
  ]);
  const { stdout, code } = await command(t, home, ["usage", "--today"], { env: zone });
  t.equal(code, 0);
  t.match(stdout, /^usage since \w{3} \d{4}-\d\d-\d\d 00:00, by tool\n/);
  t.match(
    stdout,
    /\nby \d\d:\d\d: \$3\.10; on the last 1 day at this time: median \$2\.20\n\d{4}-\d\d so far: /,
  );
  const json = JSON.parse((await command(t, home, ["usage", "--today", "--by", "model", "--json"])).stdout);
  t.match(json, {
    rows: [{ model: "gpt-5.1", requests: 1 }],
    today: { requests: 1, cost_microdollars: 3_100_000, unknown_cost: 0 },
    usual: { days: 1, requests: 1, cost_microdollars: 2_200_000 },
    forecast: { usual_day_microdollars: 2_200_000, days: 1 },
  });
  const empty = await newHome(t);
  t.match(JSON.parse((await command(t, empty, ["usage", "--today", "--json"])).stdout), {
    today: { requests: 0 },
    usual: null,
    forecast: null,
  });
  t.match(
    (await command(t, home, ["usage", "--today", "--csv"])).stdout,
    /^tool,requests,[^\n]*\r\ncodex,1,[^\n]*\r\n$/,
  );
});

t.test("where nothing was recorded yet, usage says so and where the log will be", async (t) => {
  const home = await newHome(t);
  const words = await command(t, home, ["usage"]);
  t.equal(words.code, 0);
  t.match(words.stdout, `there is no usage log yet in ${home}/state/usage; it begins with the first request`);
  const json = await command(t, home, ["usage", "--json"]);
  t.match(JSON.parse(json.stdout), { rows: [], total: { requests: 0 } });
  const csv = await command(t, home, ["usage", "--csv"]);
  t.match(csv.stdout, /^tool,requests,[^\n]*\r\n$/);
  t.same([json.code, csv.code], [0, 0]);
  await saveConfig(home, "gateway: http://127.0.0.1:9/v1\ntools: { chat: { key: env:A_KEY } }\n");
  t.equal((await command(t, home, ["usage", "--tool", "chat"])).code, 0);
  const refusal = { code: 1, stdout: "", stderr: "there is no tool nope; the tools are chat\n" };
  for (const args of [
    ["--tool", "nope"],
    ["--json", "--tool", "nope"],
    ["export", "--tool", "nope"],
  ])
    t.match(await command(t, home, ["usage", ...args]), refusal, args.join(" "));
});

t.test("wrong usage is named, with what would be right", async (t) => {
  const problems: [ReportOptions, RegExp][] = [
    [{ by: "week" }, /"week" is not one of tool, model, day, hour, key, group, gateway/],
    [{ by: "day,hour" }, /day or hour, not both/],
    [{ by: "tool,model,day" }, /one or two/],
    [{ by: "" }, /"" is not one of/],
    [{ by: "constructor" }, /"constructor" is not one of/],
    [{ since: "tuesday-ish" }, /"tuesday-ish" is not a time → write for example 7d/],
    [{ until: "2026-02-30" }, /--until: "2026-02-30" is not a time/],
    [{ since: "1h", until: "2h" }, /--since is not before --until/],
    [{ json: true, csv: true }, /not both/],
    [{ today: true, since: "7d" }, /--today is from midnight until now/],
    [{ today: true, until: "now" }, /--today is from midnight until now/],
  ];
  for (const [options, problem] of problems)
    t.match(failureText(parseQuestion(options, Date.now())), problem);
  const home = await newHome(t);
  const mistakes: [string[], RegExp][] = [
    [["usage", "--by", "week"], /"week" is not one of/],
    [["usage", "codex"], /unknown command 'codex'.*export, show, tail, ack-model,\s+rebuild/],
    [["usage", "export", "--jsonl", "--csv"], /not several/],
    [["usage", "show", "abc"], /too short/],
    [["usage", "tail", "-n", "many"], /whole number/],
  ];
  for (const [args, words] of mistakes) {
    const { code, stdout, stderr } = await command(t, home, args);
    t.equal(code, 2, args.join(" "));
    t.equal(stdout, "");
    t.match(stderr, words);
  }
});

t.test("the default period is the last seven days, or by hour the last 24 hours", async (t) => {
  const now = new Date(2026, 10, 18, 12, 34, 56).getTime();
  const period = (options: ReportOptions) => {
    const asked = parseQuestion(options, now);
    return asked.ok ? asked.question.period : asked;
  };
  t.same(period({}), { since: new Date(2026, 10, 12).getTime(), until: null });
  t.same(period({ by: "hour" }), { since: new Date(2026, 10, 17, 13).getTime(), until: null });
  t.same(period({ since: "all" }), { since: null, until: null });
  t.same(period({ until: "yesterday" }), { since: null, until: new Date(2026, 10, 18).getTime() });
  t.same(period({ since: "today" }), { since: new Date(2026, 10, 18).getTime(), until: null });
});

t.test("without a daemon, requests that have no end are shown as not finished", async (t) => {
  const now = Date.now();
  const running = { end: null, ended_at: null, first_byte_at: null, status: null } as const;
  const home = await homeWith(t, [
    record(1, { started_at: now - 1000 }),
    record(2, { started_at: now - 900, ...running }),
  ]);
  const { stdout } = await command(t, home, ["usage"], { env: zone });
  t.match(stdout, /^1 not finished when keybearer was killed; its next start counts them as$/m);
  t.match(stdout, /^1 request, /m);
});
