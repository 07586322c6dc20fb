import t from "tap";
import { printNextSteps } from "../../src/cli/init.ts";
import { findPaths } from "../../src/core/paths.ts";
import { newHome, saveConfig } from "../doubles/command.ts";

t.test("the next steps contain --config if it was given", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, "gateway: https://gateway.example.com/v1\ntools: { codex: {} }\n");
  const said = t.capture(process.stderr, "write", () => true);
  const env = { KEYBEARER_HOME: home };
  await printNextSteps(findPaths({ env, home, config: file }), "codex", false);
  const named = said().flatMap(({ args }) => args);
  await printNextSteps(findPaths({ env, home }), "codex", false);
  const own = said().flatMap(({ args }) => args);
  said.restore();
  for (const next of ["start", "use codex", "tools add <tool>"]) {
    t.match(named.join(""), `  keybearer ${next} --config ${file}\n`);
    t.match(own.join(""), `  keybearer ${next}\n`);
  }
});
