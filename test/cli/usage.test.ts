import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { command, newHome } from "../doubles/command.ts";
import { ROOT } from "../doubles/paths.ts";

const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

t.test("--version prints the version and nothing else", async (t) => {
  const { code, stdout, stderr } = await command(t, await newHome(t), ["--version"]);
  t.same({ code, stdout, stderr }, { code: 0, stdout: `${version}\n`, stderr: "" });
});

t.test("--help prints the usage on stdout and exits 0", async (t) => {
  const { code, stdout, stderr } = await command(t, await newHome(t), ["--help"]);
  t.same({ code, stderr }, { code: 0, stderr: "" });
  t.match(stdout, /^Usage: keybearer/);
});

t.test("wrong usage is reported on stderr and exits 2", async (t) => {
  const home = await newHome(t);
  const mistakes: [string[], RegExp][] = [
    [[], /^Usage: keybearer/],
    [["status", "--color", "80"], /unknown option '--color'/],
  ];
  for (const [args, words] of mistakes) {
    const { code, stdout, stderr } = await command(t, home, args);
    t.equal(code, 2, `keybearer ${args.join(" ")}`);
    t.equal(stdout, "");
    t.match(stderr, words);
    t.notMatch(stderr, /^\s+at /m, "no stack trace");
  }
});
