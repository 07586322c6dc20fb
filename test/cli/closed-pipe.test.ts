import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { hashToken } from "../../src/core/token.ts";
import { newHome, saveConfig, start } from "../doubles/command.ts";

const CONFIG = "gateway: http://127.0.0.1:9/v1\ntools:\n  claude-code: { key: env:A_KEY, model: m }\n";

t.test("a command whose reader has gone prints no stack trace and keeps its exit code", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, CONFIG);
  const commands: [string, number][] = [
    ["help", 0],
    ["usage", 0],
    ["use claude-code --json", 0],
    ["doctor", 1],
  ];
  const results = commands.map(async ([words, code]) => {
    const gone = start(t, home, words.split(" "));
    gone.child.stdout?.destroy();
    const { code: met, signal, stderr } = await gone.ended;
    t.same({ code: met, signal, stderr }, { code, signal: null, stderr: "" }, words);
  });
  await Promise.all(results);
});

t.test("a file is written whole although the reader of the output has gone", async (t) => {
  const home = await newHome(t);
  const config = await saveConfig(home, CONFIG);
  const gone = start(t, home, ["use", "claude-code", "--write", "--yes"]);
  gone.child.stdout?.destroy();
  gone.child.stderr?.destroy();
  t.equal((await gone.ended).code, 0);
  const { env } = JSON.parse(readFileSync(join(home, ".claude", "settings.json"), "utf8"));
  t.match(readFileSync(config, "utf8"), hashToken(env.ANTHROPIC_AUTH_TOKEN));
});
