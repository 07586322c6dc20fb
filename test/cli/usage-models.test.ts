import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { advice } from "../../src/core/advice.ts";
import { advised, command, newHome, saveConfig } from "../doubles/command.ts";
import { writeJournal } from "../doubles/journal.ts";
import { record } from "../doubles/records.ts";

const CONFIG = "gateway: http://127.0.0.1:9/v1\ntools: { codex: {}, claude: {} }\n";
const DAY = 24 * 3_600_000;

t.test("usage names the models that answered instead of others, until they are acknowledged", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  mkdirSync(join(home, "state"), { mode: 0o700 });
  const now = Date.now();
  const pair = (number: number, tool: string, model: string | null, answered: string | null) =>
    record(number, {
      started_at: now - (number % 3) * DAY - 60_000,
      tool,
      model,
      model_answered: answered,
    });
  writeJournal(join(home, "state", "usage"), [
    ...Array.from({ length: 12 }, (_, number) => pair(number, "codex", "gpt-5.1", "gpt-5.1-mini")),
    ...Array.from({ length: 20 }, (_, number) => pair(20 + number, "codex", "gpt-5", "gpt-5-2025-08-07")),
    ...Array.from({ length: 5 }, (_, number) => pair(50 + number, "codex", "gpt-5.1", "gpt-5.1")),
    pair(60, "codex", "gpt-5.1", null),
    pair(61, "codex", null, "gpt-5.1"),
    pair(70, "claude", "house", "it's $(mine)"),
  ]);
  const usage = async (...args: string[]) => {
    const { stdout } = await command(t, home, ["usage", ...args]);
    return { stdout, words: stdout.replace(/\s+/g, " ") };
  };
  const all = await usage();
  t.match(
    all.words,
    "13 of 40 were answered by another model: codex: gpt-5.1 → gpt-5.1-mini (12), claude: house → it's $(mine) (1)",
  );
  t.match(
    (await usage("--tool", "codex")).words,
    "12 of 39 were answered by another model: gpt-5.1 → gpt-5.1-mini",
  );
  t.strictSame(JSON.parse((await usage("--json", "--tool", "codex")).stdout).other_models, [
    { tool: "codex", asked: "gpt-5.1", answered: "gpt-5.1-mini", requests: 12 },
  ]);
  // A session is read from the records alone.
  t.notMatch((await usage("--session", "none-such")).words, "another model");

  const acknowledge = advised(t, all.stdout, advice.acknowledgeModel("gpt-5.1", "gpt-5.1-mini"));
  const done = await command(t, home, acknowledge);
  t.equal(done.code, 0, done.stderr);
  t.match(readFileSync(file, "utf8"), /same_models:\s*\{? *gpt-5\.1: gpt-5\.1-mini/);
  t.notMatch((await usage("--tool", "codex")).words, "another model");
  t.match((await usage()).words, "1 of 40 was answered by another model: claude: house → it's $(mine)");
  t.equal(
    advice.acknowledgeModel("house", "it's $(mine)"),
    "keybearer usage ack-model house 'it'\\''s $(mine)'",
    "a name that a gateway chose is no code for a shell",
  );
  t.equal(advice.acknowledgeModel("house", "--config=x"), "keybearer usage ack-model -- house --config=x");

  await command(t, home, ["usage", "ack-model", "house", "it's $(mine)"]);
  await command(t, home, ["usage", "ack-model", "house", "another"]);
  t.match((await command(t, home, ["usage", "ack-model", "house", "another"])).stdout, "already counts");
  t.match((await command(t, home, ["usage", "ack-model", "house", "it's $(mine)"])).stdout, "already counts");
  t.equal((await command(t, home, ["check"])).code, 0);
  t.notMatch((await usage()).words, "another model");
});
