import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import t from "tap";
import { command } from "../doubles/command.ts";
import { freshToken, startUnderTest, startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { canary, filesBelow, scan, textsOf } from "../doubles/secret-scan.ts";
import { until } from "../doubles/until.ts";
import { faultsIn, finished, recordsIn } from "../doubles/usage-file.ts";

/** Texts that others choose, and that must neither do harm in the usage log nor stand there. */

/** The bytes of every file, by a process of its own: to close a descriptor here would drop the log's locks. */
function bytesOf(folder: string): Record<string, string> {
  const copy = mkdtempSync(join(tmpdir(), "kb-copy-"));
  // It fails if a temporary file goes meanwhile, and copies the others.
  spawnSync("cp", ["-r", folder, copy]);
  const texts = Object.entries(textsOf(filesBelow(copy))).map(([path, text]) => [basename(path), text]);
  execFileSync("rm", ["-r", copy]);
  return Object.fromEntries(texts);
}

/** Without any of the beginnings by which keys are known. */
const shapeless = () => `Zq${randomBytes(16).toString("hex").slice(0, 14)}w`;

t.test("no text of a prompt or an answer, and no secret, is in any file or output", async (t) => {
  const words = () => `word${randomBytes(12).toString("hex")}`;
  const own = { shaped: canary(), shapeless: shapeless() };
  const tools = { shaped: freshToken(), shapeless: freshToken() };
  const secrets: Record<string, string> = {
    "the tool's key": own.shaped,
    "the other tool's key": own.shapeless,
    "the tool's token": tools.shaped.token,
    "the other tool's token": tools.shapeless.token,
    "another key": canary(),
    "the prompt": words(),
    "the answer": words(),
    "a cookie": words(),
    "a cookie of the gateway's": words(),
    "a header": words(),
    "a file": words(),
  };
  const { "the answer": said = "", "a cookie of the gateway's": cookie = "" } = secrets;
  /** What the gateway puts wherever it has a place for it. */
  let echoed = "";
  const gateway = await startRawGateway(t, async (call: GatewayCall) => {
    await call.whole;
    const headers = {
      "Content-Type": "application/json",
      "Set-Cookie": `a=${cookie}`,
      "X-Request-Id": echoed,
    };
    const usage = { prompt_tokens: 3, completion_tokens: 4 };
    const choices = [{ index: 0, message: { role: "assistant", content: said } }];
    if (call.target.includes("refuse")) {
      const message = `${said} (request id: ${echoed})`;
      call.answer("400 No", headers, JSON.stringify({ error: { message, code: echoed } }));
    } else call.answer("200 OK", headers, JSON.stringify({ id: echoed, model: echoed, choices, usage }));
  });
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.origin}/v1
tools:
  one: { key: ${own.shaped}, token: "${tools.shaped.hash}", estimate: true }
  two: { key: ${own.shapeless}, token: "${tools.shapeless.hash}", ask_usage: true }
`,
  );
  const ask = async (token: string, path: string, body: object | string) => {
    const answer = await fetch(under.url + path, {
      method: "POST",
      headers: {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        cookie: `session=${secrets["a cookie"]}`,
        "user-agent": `agent ${secrets["a header"]}`,
        "x-request-id": secrets["a header"] ?? "",
      },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
    await answer.text();
    t.type(await finished(under.paths.usage, answer.headers.get("x-keybearer-request-id")), "object");
  };
  let asked = 0;
  for (const { token } of Object.values(tools)) {
    for (const secret of Object.values(secrets)) {
      echoed = /^word/.test(secret) ? "harmless" : secret;
      const prompt = { messages: [{ role: "user", content: secrets["the prompt"] }] };
      const routes = [
        `/v1/chat/completions?trace=${encodeURIComponent(secret)}`,
        "/v1/chat/completions/refuse",
        "/v1/messages",
      ];
      const model = /^word/.test(secret) ? "gpt-x" : secret;
      for (const path of routes) await ask(token, path, { model, ...prompt });
      await ask(token, "/v1/chat/completions", { model: `openai/${model}:free`, stream: true, ...prompt });
      // In the middle of a word only what is our own can be told from a name.
      const inside = secret === secrets["another key"] ? model : `x${model}`;
      await ask(token, "/v1/chat/completions", { model: inside, ...prompt });
      await ask(token, "/v1/files", `${secrets["a file"]}`);
      asked += 6;
      if (/^(?:word|kb_)/.test(secret)) continue;
      await ask(token, `/v1/responses/${secret}/cancel`, prompt);
      await ask(token, `/v1beta/models/${secret}:generateContent`, {
        contents: [{ parts: [{ text: secrets["the prompt"] }] }],
      });
      asked += 2;
    }
  }
  await until("all are written", () => recordsIn(under.paths.usage).every(({ end }) => end !== null));
  const records = recordsIn(under.paths.usage);
  t.equal(records.length, asked);
  t.strictSame(scan({ records: JSON.stringify(records) }, secrets), [], "in no record");
  // Has the index made.
  await command(t, under.home, ["usage"]);
  const files = bytesOf(under.paths.state);
  t.ok(files["index.db"], "the index is looked at");
  t.ok(
    Object.keys(files).some((name) => name.endsWith(".jsonl")),
    "and the journal",
  );
  t.strictSame(scan(files, secrets), [], "in no file while it runs");
  t.strictSame(scan({ log: under.logText() }, secrets), [], "not in the log");
  for (const args of [["export"], ["export", "--csv"], ["show", "last"], ["--json"], ["--by", "model"]]) {
    const { stdout, stderr } = await command(t, under.home, ["usage", ...args]);
    t.strictSame(scan({ stdout, stderr }, secrets), [], `not in what usage ${args.join(" ")} prints`);
  }
  await under.daemon.stop();
  t.strictSame(scan(bytesOf(under.paths.state), secrets), [], "nor when it has ended");
});

const HOSTILE: Readonly<Record<string, string>> = {
  "escape sequences": "\u001b]0;title\u0007\u001b[2Jgpt",
  "a NUL in it": "gpt\u0000-x",
  "half a character": "gpt-\ud800-x",
  "half a character at the cut": `${"x".repeat(199)}😀`,
  quotes: `gpt'; DROP TABLE records; --"`,
  "an own name": "__proto__",
  "another own name": "constructor",
  "right to left": "gpt-\u202e4o",
  "a formula": "=HYPERLINK(1)",
  "line breaks": "gpt\r\n\u2028x",
  "a long name": "m".repeat(10 * 1024 * 1024),
  nothing: "",
  "only spaces": "   ",
  "many bytes a character": "😀".repeat(300),
};

longTest(t, "no model name does harm", async (t) => {
  let name = "";
  const gateway = await startRawGateway(
    t,
    async (call) => {
      await call.whole;
      const usage = { prompt_tokens: 3, completion_tokens: 4 };
      call.ok(JSON.stringify({ id: name.slice(0, 5000), model: name.slice(0, 5000), usage }));
    },
    { keepBodies: false },
  );
  const one = await startWithOneTool(t, gateway.origin);
  const chat = async (body: string) => {
    const answer = await fetch(`${one.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${one.token}`, "content-type": "application/json" },
      body,
    });
    await answer.text();
    t.equal(answer.status, 200);
    return finished(one.paths.usage, answer.headers.get("x-keybearer-request-id"));
  };
  for (const [what, model] of Object.entries(HOSTILE)) {
    name = model;
    for (let n = 0; n < 2; n += 1) {
      const record = await chat(JSON.stringify({ model, messages: [] }));
      t.match(record, { end: "complete", input_tokens: 3, output_tokens: 4 }, what);
      t.ok((record.model ?? "").length <= 200, `${what}: it is not kept whole`);
      t.notMatch(
        `${record.model}${record.model_answered}`,
        /[\p{Cc}\p{Cs}]/u,
        `${what}: it is fit to be printed`,
      );
    }
  }
  for (const odd of [
    '{"model":7}',
    '{"model":null}',
    '{"model":{"model":"x"}}',
    '{"model":["x"]}',
    "[]",
    "{",
    '"model"',
  ]) {
    const record = await chat(odd);
    t.match(record, { end: "complete", model: null }, odd);
  }
  t.strictSame(faultsIn(one.paths.usage), []);
  const { stdout, code } = await command(t, one.home, ["usage", "export"]);
  t.equal(code, 0);
  t.strictSame(JSON.parse(stdout).length, recordsIn(one.paths.usage).length, "all of them are exported");
  await stillHealthy(t, one, [one.key, one.token]);
});
