import t from "tap";
import { textWidth } from "../../src/cli/ui/text.ts";
import { command, newHome, saveConfig, startServing } from "../doubles/command.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import { atScreen, screenAfter } from "../doubles/screen.ts";

/** How a terminal is given a color. */
const COLORED = "\u001b[3";
const COMMANDS = [
  ["status"],
  ["tools"],
  ["models"],
  ["keys"],
  ["mirror"],
  ["usage"],
  ["doctor"],
  ["rotate"],
  ["--help"],
];

t.test("every screen fits 80 and 120 columns, except for paths and commands to copy", async (t) => {
  const home = await newHome(t);
  await serveIn(t, home);
  for (const columns of [80, 120]) {
    for (const args of COMMANDS) {
      const screen = await screenAfter(t, home, args, { columns });
      // A path, an address or a command to copy stays whole, whatever the width.
      const wide = screen
        .split("\n")
        .filter((line) => textWidth(line) > columns && !/^ *→ |^\s*\S+$/.test(line));
      t.strictSame(wide, [], `keybearer ${args.join(" ")} at ${columns} columns`);
    }
  }
});

t.test("NO_COLOR and TERM=dumb switch colors off", async (t) => {
  const home = await newHome(t);
  const colored = await atScreen(t, home, ["doctor"], { env: { TERM: "xterm-256color" } }).ended;
  t.match(colored.stdout, COLORED);
  for (const env of [{ TERM: "xterm-256color", NO_COLOR: "1" }, { TERM: "dumb" }]) {
    const { stdout } = await atScreen(t, home, ["doctor"], { env }).ended;
    t.notMatch(stdout, COLORED, JSON.stringify(env));
  }
});

t.test("run prints config.yaml's gateway and tools, and stop ends it and says so", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(
    home,
    `listen: localhost:0
gateway: https://gateway.example.com/v1
tools: { codex: { key: env:NOT_SET_HERE }, scripts: { key: env:NOT_SET_HERE } }
`,
  );
  const running = await startServing(t, home);
  await running.says(/next .*\n/);
  t.match(
    running.stdout(),
    `  config   ${file}
  gateway  main  https://gateway.example.com/v1
  tools    codex and scripts
`,
  );
  t.match(await command(t, home, ["stop"]), { code: 0, stdout: /^keybearer is stopped, it was pid \d+\n$/ });
  t.equal((await running.ended).code, 0);
  t.match(await command(t, home, ["stop"]), { code: 1, stderr: /keybearer is not running/ });
});

t.test("check points at a badly indented line, and reports it once", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(
    home,
    "gateway: https://gateway.example.com/v1\ntools:\n  codex:\n    key: env:X\n   group: x\n",
  );
  t.equal(
    await screenAfter(t, home, ["check"]),
    `${file}:5:4: this line is indented differently from the settings beside it
       group: x
       ^
    → settings of the same block begin in the same column

1 problem
`,
  );
});
