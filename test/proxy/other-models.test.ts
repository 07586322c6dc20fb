import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { formatStatus } from "../../src/cli/status.ts";
import type { Config } from "../../src/config/schema.ts";
import { otherModelAnswered } from "../../src/events/conditions.ts";
import type { Occurrence } from "../../src/events/event.ts";
import { Prices, readPriceTable } from "../../src/metering/prices.ts";
import { OtherModels } from "../../src/proxy/other-models.ts";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { listen } from "../doubles/listen.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { until } from "../doubles/until.ts";

const prices = new Prices(readPriceTable());
const CONFIG = "gateway: https://gateway.example.com/v1\ntools: { codex: {} }\n";

function newFile(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), "kb-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "other-models.json");
}

function start(file: string, config: () => Config = () => configOf(CONFIG)) {
  const reported: Occurrence[] = [];
  const models = new OtherModels({
    file,
    log: quietLog([]),
    prices,
    config,
    report: (found) => reported.push(otherModelAnswered(found)),
  });
  return { models, reported };
}

t.test("another model is counted each time, and reported the first time, also after a restart", async (t) => {
  const file = newFile(t);
  const { models, reported } = start(file);
  t.equal(models.status("codex"), null);
  models.note("codex", "gpt-5.1", "gpt-5.1");
  models.note("codex", "gpt-5", "gpt-5-2025-08-07");
  models.note("codex", null, "gpt-5");
  models.note("codex", "gpt-5", null);
  t.same(models.status("codex"), { answered: 2, other: 0, pairs: [] });
  t.same(reported, []);
  for (let count = 0; count < 3; count += 1) models.note("codex", "gpt-5.1", "gpt-5.1-mini");
  models.note("codex", "gpt-5.1", "gpt-4o");
  models.note("claude", "gpt-5.1", "gpt-5.1-mini");
  t.same(models.status("codex"), {
    answered: 6,
    other: 4,
    pairs: [
      { asked: "gpt-5.1", answered: "gpt-5.1-mini", requests: 3 },
      { asked: "gpt-5.1", answered: "gpt-4o", requests: 1 },
    ],
  });
  t.same(reported[0], {
    kind: "other-model",
    severity: "warning",
    subject: "tool codex",
    message: "codex asked for gpt-5.1, and gpt-5.1-mini answered",
    next: "keybearer usage ack-model gpt-5.1 gpt-5.1-mini",
    said: { code: "other-model", values: { name: "codex", asked: "gpt-5.1", answered: "gpt-5.1-mini" } },
  });
  t.same(
    reported.map(({ message }) => message.split(" ").at(-2)),
    ["gpt-5.1-mini", "gpt-4o", "gpt-5.1-mini"],
    "each tool has its own",
  );
  await models.stop();
  const again = start(file);
  again.models.note("codex", "gpt-5.1", "gpt-5.1-mini");
  t.same(again.reported, []);
  t.equal(again.models.status("codex")?.other, 1, "it counts from the start");
  again.models.note("codex", "gpt-5", "gpt-5.1-mini");
  t.equal(again.reported.length, 1);
  await again.models.stop();
});

t.test("a pair that was acknowledged counts no more, from the next request on", async (t) => {
  let config = configOf(CONFIG);
  const { models, reported } = start(newFile(t), () => config);
  models.note("codex", "house", "gpt-5.1");
  config = configOf(`${CONFIG}usage: { same_models: { house: [gpt-5.1, gpt-5] } }\n`);
  models.note("codex", "house", "gpt-5.1");
  models.note("codex", "house", "gpt-5");
  t.match(models.status("codex"), { answered: 3, other: 1 });
  t.equal(reported.length, 1);
  await models.stop();
});

t.test(
  "a gateway that invents names fills neither the memory nor the file, and a damaged file is no obstacle",
  async (t) => {
    const file = newFile(t);
    writeFileSync(file, "[1, {");
    const { models, reported } = start(file);
    for (let number = 0; number < 500; number += 1) models.note("codex", "gpt-5.1", `invented-${number}`);
    t.match(models.status("codex"), { answered: 500, other: 500 });
    t.equal(models.status("codex")?.pairs.length, 50);
    t.equal(reported.length, 50);
    await models.stop();
    t.equal(JSON.parse(readFileSync(file, "utf8")).length, 50);
  },
);

t.test("status names what answered instead", async (t) => {
  const server = createServer(async (req, res) => {
    for await (const _ of req);
    res.writeHead(200, { "content-type": "application/json" });
    res.end(
      JSON.stringify({
        model: "gpt-5.1-mini",
        choices: [],
        usage: { prompt_tokens: 1, completion_tokens: 1 },
      }),
    );
  });
  const { origin } = await listen(t, server);
  const under = await startWithOneTool(t, origin);
  for (const model of ["gpt-5.1", "gpt-5.1", "gpt-5.1-mini"]) {
    const answer = await fetch(`${under.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${under.token}` },
      body: JSON.stringify({ model, messages: [] }),
    });
    await answer.text();
  }
  await until("all have ended", () => under.ended().length === 3);
  const status = await under.daemon.status();
  t.match(status.tools[0]?.models_answered, { answered: 3, other: 2 });
  const text = formatStatus(status, Date.now(), 200);
  t.match(text, "codex: 2 of 3 since the start were answered by another model: gpt-5.1 → gpt-5.1-mini");
  t.match(text, "→ if it is the same model: keybearer usage ack-model gpt-5.1 gpt-5.1-mini");
});
