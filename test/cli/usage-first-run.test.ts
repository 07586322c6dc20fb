import t from "tap";
import { EXPORTED, type UsageRecord } from "../../src/usage/record.ts";
import { command, start } from "../doubles/command.ts";
import { startUnderTest } from "../doubles/daemon-under-test.ts";
import { recordFor } from "../doubles/usage-journey.ts";

/** The fields that the command line shows. */
function exportedFields(record: UsageRecord): UsageRecord {
  return Object.fromEntries(EXPORTED.map((name) => [name, record[name]])) as unknown as UsageRecord;
}

process.env.TZ = "UTC";

t.test("a newcomer sees in a second terminal what the first requests used and cost", async (t) => {
  const under = await startUnderTest(t, null);
  const { sandboxSession } = under.daemon;
  if (sandboxSession === null) return t.fail("no sandbox");
  // Its console lists nothing until the end: a record that took the console's numbers would be another one by then.
  const { account } = sandboxSession.sandbox;
  const heldUsage = t.capture(account, "usage", () => []);
  const said: string[] = [];
  const usage = async (...args: string[]) => {
    const ended = await command(t, under.home, ["usage", ...args], { env: { COLUMNS: "120" } });
    said.push(ended.stdout, ended.stderr);
    return ended;
  };

  const tail = start(t, under.home, ["usage", "tail", "--json"]);
  const [table, exported, last] = await Promise.all([usage(), usage("export"), usage("show", "last")]);
  t.match(table, { code: 0, stdout: /nothing was recorded yet/ });
  t.same(JSON.parse(exported.stdout), []);
  t.match(last, { code: 1, stdout: "", stderr: /nothing was recorded yet/ });

  const send = async (path: string, body: object | null) => {
    const response = await fetch(`${under.url}${path}`, {
      headers: { authorization: `Bearer ${sandboxSession.token}`, "content-type": "application/json" },
      ...(body === null ? {} : { method: "POST", body: JSON.stringify(body) }),
    });
    await response.text();
    t.equal(response.status, 200);
    return exportedFields(await recordFor(under, response));
  };
  const ask = { model: sandboxSession.model, messages: [{ role: "user", content: "hello" }] };
  const list = await send("/v1/models", null);
  const chat = await send("/v1/chat/completions", ask);
  const stream = await send("/v1/chat/completions", { ...ask, stream: true });
  for (const { id } of [list, chat, stream]) await tail.says(new RegExp(id));
  tail.child.kill("SIGINT");
  const { code, stdout } = await tail.ended;
  t.equal(code, 0, "Ctrl-C is how it ends");
  const tailed: UsageRecord[] = linesOf(stdout).map((line) => JSON.parse(line));
  t.same(tailed, [list, chat, stream], "each once, whole, as it ended");

  await t.test("the table names the tool and the sum, and nothing is unknown", async (t) => {
    const [byTool, asJson] = await Promise.all([usage(), usage("--json")]);
    t.match(byTool, { code: 0, stdout: /^try-me +3 /m });
    t.match(byTool.stdout, /^3 requests, \$0\.000\d+\n\d+ tokens: \d+ input, \d+ output$/m);
    t.notMatch(byTool.stdout, /unknown|config\.yaml/);
    for (const line of byTool.stdout.split("\n")) t.ok([...line].length <= 120, line);

    const { rows, total } = JSON.parse(asJson.stdout);
    t.match(rows, [{ tool: "try-me", requests: 3, unmetered: 0 }]);
    t.match(total, { requests: 3, refused: 0, unmetered: 0, unpriced: 0 });
    const sum = (name: keyof UsageRecord) => Number(chat[name]) + Number(stream[name]);
    t.match(
      total,
      {
        input_tokens: sum("input_tokens"),
        output_tokens: sum("output_tokens"),
        list_microdollars: sum("list_microdollars"),
        cost_microdollars: sum("cost_microdollars"),
      },
      "the records' sums",
    );
  });

  await t.test("export prints every field, in its order, as it was recorded", async (t) => {
    const [json, jsonl, csv] = await Promise.all(
      [[], ["--jsonl"], ["--csv"]].map((form) => usage("export", ...form)),
    );
    t.match(json, { code: 0, stderr: "" });
    const records: UsageRecord[] = JSON.parse(json?.stdout ?? "");
    t.same(records, [list, chat, stream]);
    for (const record of records) t.strictSame(Object.keys(record), [...EXPORTED]);
    t.match(records[2], { tokens_from: "reported", stream: true });
    t.same(
      linesOf(jsonl?.stdout ?? "").map((line) => JSON.parse(line)),
      records,
    );
    t.ok(linesOf(csv?.stdout ?? "")[0]?.startsWith(`${EXPORTED.join(",")},started_at_iso,`));
    t.equal(linesOf(csv?.stdout ?? "").length, 4);
  });

  await t.test("show finds a record by its id, the gateway's id, and last", async (t) => {
    const [found, asJson, newest] = await Promise.all([
      usage("show", chat.gateway_ids["x-client-request-id"] ?? ""),
      usage("show", chat.id, "--json"),
      usage("show", "last"),
    ]);
    t.match(found, { code: 0, stdout: new RegExp(chat.id) });
    t.same(JSON.parse(asJson.stdout), chat);
    t.match(newest.stdout, stream.id);
    t.match(newest.stdout, /reported by the gateway/);
  });

  await t.test("wrong usage exits 2 and a missing record exits 1, each with a message", async (t) => {
    const [by, none] = await Promise.all([usage("--by", "colour"), usage("show", "ZZZZZZZZ")]);
    t.match(by, { code: 2, stdout: "", stderr: /--by.*tool, model, day/ });
    t.match(none, { code: 1, stdout: "", stderr: /no record ZZZZZZZZ/ });
  });

  heldUsage.restore();
  const [row] = account.usage();
  t.match(chat, {
    tool: "try-me",
    gateway: "sandbox",
    model: "sandbox-small",
    tokens_from: "reported",
    output_tokens: row?.tokens.output,
    cost_microdollars: Math.round((row?.cost.actual ?? Number.NaN) * 1e6),
    gateway_ids: { "x-client-request-id": row?.requestId.replace("client:", "") },
  });
  t.notOk(`${said.join("")}${stdout}`.includes(sandboxSession.token), "the token is in none of it");
});

function linesOf(text: string): string[] {
  return text.trim().split(/\r?\n/);
}
