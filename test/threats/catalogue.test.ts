import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { ROOT } from "../doubles/paths.ts";

/** The cases of the threat catalogue that must hold before a release, by group. */
const CASES: Readonly<Record<string, readonly number[]>> = {
  AUTH: range(1, 15),
  BRW: range(1, 18),
  HTTP: range(1, 24),
  UP: range(1, 20),
  CL: range(1, 10),
  // Of configuration and secrets, the cases about files.
  CFG: [5],
  SEC: [8, 10],
  LOG: [...range(1, 14), 16],
};

/** The cases without a test in this folder, and where they are tested, or why they cannot be. */
const NOT_HERE: Readonly<Record<string, string>> = {
  "AUTH-07": "the dashboard's sessions are in test/dashboard/server.test.ts",
  "BRW-13": "the dashboard's server is in test/dashboard/server.test.ts",
  "BRW-14": "the dashboard's server is in test/dashboard/server.test.ts",
  "BRW-16": "the dashboard's codes are in test/dashboard/server.test.ts and test/dashboard/dashboard.test.ts",
  "BRW-17":
    "the page is in test/dashboard/browser.test.ts, commands are in test/journeys/usage-hostile.test.ts",
  "BRW-18": "the dashboard's server is in test/dashboard/server.test.ts",
  "HTTP-17": "config.yaml has no list of allowed paths: a tool may call every endpoint of its gateway",
  "HTTP-22": "the fuzz is in test/security/fuzz.test.ts",
  "HTTP-23": "config.yaml has no limit for bodies: they stream, whatever their size",
  "LOG-11": "the journal has no database, and the index can be rebuilt: test/usage/index/index.test.ts",
  "LOG-12": "no request waits for the index: LOG-13",
  "LOG-14": "a million records are in test/bench, retention is in test/usage/maintenance.test.ts",
  "LOG-16": "prompts and secrets are in test/journeys/usage-hostile.test.ts",
};

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, n) => from + n);
}

/** The case numbers at the beginning of every title in this folder. */
function titles(): Map<string, string[]> {
  const folder = join(ROOT, "test", "threats");
  const found = new Map<string, string[]>();
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".test.ts"))) {
    const text = readFileSync(join(folder, file), "utf8");
    for (const [, numbers = ""] of text.matchAll(/\bt\.test\(\s*["`]((?:[A-Z]+-\d\d,? )+)/g)) {
      for (const number of numbers.trim().split(/,? /)) {
        found.set(number, [...(found.get(number) ?? []), file]);
      }
    }
  }
  return found;
}

t.test("every case has exactly one test in this folder, or a reason why not", async (t) => {
  const shown = titles();
  const all = Object.entries(CASES).flatMap(([group, numbers]) =>
    numbers.map((number) => `${group}-${String(number).padStart(2, "0")}`),
  );
  for (const name of all) {
    const times = shown.get(name)?.length ?? 0;
    if (NOT_HERE[name] === undefined) t.equal(times, 1, `${name} has one test`);
    else t.equal(times, 0, `${name} is not here: ${NOT_HERE[name]}`);
  }
  const unknown = [...shown.keys(), ...Object.keys(NOT_HERE)].filter((name) => !all.includes(name));
  t.strictSame(unknown, [], "no other number is used");
  for (const [path] of Object.values(NOT_HERE)
    .join(" ")
    .matchAll(/test\/[\w/.-]*\w/g)) {
    t.ok(existsSync(join(ROOT, path)), `${path} exists`);
  }
});
