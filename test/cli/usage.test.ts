import { readFileSync } from "node:fs";
import t from "tap";
import { command, newHome } from "../doubles/command.ts";

const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));

const COMMANDS = [
  ...["run", "check", "status", "tools", "tools list", "tools token", "trust"],
  ...["usage", "usage export", "usage show", "usage tail"],
];

t.test("--version prints the version and nothing else", async (t) => {
  const { code, stdout, stderr } = await command(t, await newHome(t), ["--version"]);
  t.same({ code, stdout, stderr }, { code: 0, stdout: `${version}\n`, stderr: "" });
});

t.test("every help fits a screen of 24 lines and 80 columns", async (t) => {
  const home = await newHome(t);
  const ways = [["--help"], ["help"], ...COMMANDS.map((name) => [...name.split(" "), "--help"])];
  for (const args of ways) {
    const { code, stdout, stderr } = await command(t, home, args);
    const lines = stdout.trimEnd().split("\n");
    t.equal(code, 0, `${args.join(" ")} is no mistake`);
    t.equal(stderr, "");
    t.match(stdout, /^Usage: keybearer/);
    t.ok(lines.length < 24, `${args.join(" ")}: ${lines.length} lines, and one for the prompt`);
    t.same(
      lines.filter((line) => [...line].length > 80),
      [],
      `${args.join(" ")} is narrow enough`,
    );
  }
});

t.test("the help names every command and every exit code", async (t) => {
  const { stdout } = await command(t, await newHome(t), ["--help"]);
  for (const name of ["run", "check", "status", "tools", "trust", "usage"]) {
    t.match(stdout, new RegExp(`^  ${name}\\b`, "m"));
  }
  for (const code of [0, 1, 2, 69, 75, 78]) t.match(stdout, new RegExp(`\\b${code} [a-z]`));
});

t.test("wrong usage is said on stderr and exits 2", async (t) => {
  const home = await newHome(t);
  const mistakes: [string[], RegExp][] = [
    [[], /^Usage: keybearer/],
    [["serve"], /unknown command 'serve'/],
    [["run", "now"], /too many arguments/],
    [["run", "--port", "80"], /unknown option '--port'/],
    [["run", "--config"], /argument missing/],
    [["status", "codex"], /too many arguments/],
    [["tools", "token"], /missing required argument 'tool'/],
    [["trust"], /missing required argument/],
  ];
  for (const [args, words] of mistakes) {
    const { code, stdout, stderr } = await command(t, home, args);
    t.equal(code, 2, `keybearer ${args.join(" ")}`);
    t.equal(stdout, "");
    t.match(stderr, words);
    t.notMatch(stderr, /^\s+at /m, "no stack trace");
  }
});
