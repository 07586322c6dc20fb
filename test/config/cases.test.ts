import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { parseConfig } from "../../src/config/parse.ts";
import { formatProblems } from "../../src/config/problems.ts";
import { ROOT } from "../doubles/paths.ts";

/**
 * Every file of cases/ is a config.yaml, a line of dashes, and what comes of it: `ok` and some values of the result, or
 * the problems as a person sees them. `\t`, `\r` and `\u{FEFF}` stand for what an editor would change or hide.
 */
const folder = join(ROOT, "test", "config", "cases");
const HOME = "/home/me";

for (const name of readdirSync(folder).sort()) {
  t.test(name.replace(/\.yaml$/, "").replaceAll("-", " "), async (t) => {
    const [input, expected, ...more] = readFileSync(join(folder, name), "utf8").split(/^-----\n/m);
    t.same(more, [], "there is one line of dashes");
    t.type(expected, "string", "there is a line of dashes");
    const { config, problems } = parseConfig(unescaped(input ?? ""), HOME);
    const shown = formatProblems("config.yaml", problems);
    const [first, ...values] = (expected ?? "").trimEnd().split("\n");
    if (first !== "ok") {
      t.equal(shown, (expected ?? "").trimEnd());
      const failed = problems.some((problem) => problem.severity === "error");
      t.equal(config === null, failed, "a config comes out exactly when there is no error");
      return;
    }
    t.equal(shown, "");
    t.not(config, null);
    for (const line of values) {
      const [path = "", json = ""] = line.split(/ = (.*)/s);
      t.equal(JSON.stringify(at(config, path)), json, path);
    }
  });
}

function unescaped(text: string): string {
  return text.replaceAll("\\t", "\t").replaceAll("\\r", "\r").replaceAll("\\u{FEFF}", "\u{FEFF}");
}

/** The value at a path such as tools.codex.limits.requests; a name with dots in it is not reached. */
function at(root: unknown, path: string): unknown {
  let value = root;
  for (const name of path.split(".")) {
    if (typeof value !== "object" || value === null) return undefined;
    value = Reflect.get(value, name);
  }
  return value;
}
