// Runs the compiled tests with tap: `npm run tap` all of them, `npm run tap -- test/core/token.test.ts` one file,
// `npm run tap -- test/core` a folder. Options of tap may follow. At the end it prints the seconds of each file.
//
// There are two suites. Without --long: all files but those named *.long.test.ts. With it: those, and the files that repeat
// more there (they import doubles/effort.ts).
//
// Starting a process with tap takes longer than most test files run. So up to sixteen files share a process, which runs them
// one after the other (run-files.mjs).
import { spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism } from "node:os";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const FILES_PER_PROCESS = 16;
const LONG = process.argv.includes("--long");
const TAP = join(ROOT, "node_modules/.bin/tap");

/**
 * These folders have the longest files. They come first, so that no long file runs alone at the end, and their files share
 * processes only within the folder.
 */
const FIRST = [
  "test/cli",
  "test/journeys",
  "test/shared",
  "test/service",
  "test/dashboard",
  "test/threats",
  "test/security",
  "test/config",
];

/** A change of the root test would affect all files of the process, so such a file has its own process. */
const CHANGES_ROOT_TEST =
  /^t\.(?:before|beforeEach|after|afterEach|teardown|jobs|setTimeout|plan|bailout)\b/m;

/** These have their own process, too. */
const ALONE = new Set([
  // Longer than the rest of their folders together.
  "test/dashboard/browser.test.ts",
  "test/shared/chaos.test.ts",
]);

/** Whether the file belongs to the suite that runs. */
function isChosen(file) {
  const isLong = file.endsWith(".long.test.ts");
  if (!LONG) return !isLong;
  return isLong || readFileSync(join(ROOT, file), "utf8").includes('/effort.ts"');
}

function testFilesBelow(path) {
  const all = statSync(join(ROOT, path)).isDirectory()
    ? readdirSync(join(ROOT, path), { recursive: true })
    : [""];
  const files = all.map((name) => join(path, name));
  return files.filter((file) => file.endsWith(".test.ts") && !file.includes("node_modules")).sort();
}

function needsOwnProcess(file) {
  return ALONE.has(file) || CHANGES_ROOT_TEST.test(readFileSync(join(ROOT, file), "utf8"));
}

/** Each group of files shares a process. */
function groupsOf(files) {
  const groups = [];
  const shared = new Map();
  for (const file of files) {
    const folder = FIRST.find((first) => file.startsWith(`${first}/`)) ?? "others";
    const open = shared.get(folder);
    if (needsOwnProcess(file)) {
      groups.push([file]);
    } else if (open !== undefined && open.length < FILES_PER_PROCESS) {
      open.push(file);
    } else {
      shared.set(folder, [file]);
      groups.push(shared.get(folder));
    }
  }
  return groups;
}

function position([file]) {
  const at = FIRST.findIndex((folder) => file.startsWith(`${folder}/`));
  return at === -1 ? FIRST.length : at;
}

/** Writes the program that runs a group. tap runs programs in the order of their names. */
function writeProgram(folder, files, at) {
  const name = relative("test", files[0]).replaceAll("/", "-").replace(/\.ts$/, ".js");
  const program = join(folder, `${String(at + 1).padStart(2, "0")}-${name}`);
  const runFiles = relative(folder, join(ROOT, "test/run-files.mjs"));
  const lines = files.map((file) => `  ${JSON.stringify(file)},\n`).join("");
  writeFileSync(program, `import { runFiles } from "${runFiles}";\n\nawait runFiles([\n${lines}]);\n`);
  return program;
}

/**
 * npm installs tap with its TypeScript plugin, which package.json switches off. tap rebuilds itself without the plugin, but
 * only after it decided how to start the processes of the current run. So it is rebuilt here first.
 */
function buildTap() {
  const { stdout } = spawnSync(TAP, ["node-options"], { cwd: ROOT, encoding: "utf8" });
  if (stdout.includes("@tapjs/typescript")) spawnSync(TAP, ["build"], { cwd: ROOT, stdio: "inherit" });
}

/** Messages name the command as it was called, and the tests compare them with those of an installed keybearer. */
function linkProgram() {
  const bin = join(ROOT, "build", "bin");
  rmSync(bin, { recursive: true, force: true });
  mkdirSync(bin, { recursive: true });
  symlinkSync(join(ROOT, "dist", "cli", "main.js"), join(bin, "keybearer"));
}

/** Prints the seconds of each file, slowest first. */
function printTimes(times) {
  if (!existsSync(times)) return;
  const rows = readFileSync(times, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  rows.sort((a, b) => b.seconds - a.seconds);
  for (const row of rows) process.stdout.write(`${row.seconds.toFixed(1).padStart(7)} s  ${row.file}\n`);
}

const args = process.argv.slice(2).filter((arg) => arg !== "--long");
const named = args.filter((arg) => !arg.startsWith("-")).map((path) => relative(ROOT, resolve(path)));
const options = args.filter((arg) => arg.startsWith("-"));
// A file that is named runs, whichever suite it belongs to.
const isNamed = (file) => named.includes(file);
const files = (named.length > 0 ? named : ["test"])
  .flatMap(testFilesBelow)
  .filter((file) => isNamed(file) || isChosen(file));

const folder = join(ROOT, "build", named.length > 0 ? "named" : "programs");
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const groups = groupsOf(files).sort((a, b) => position(a) - position(b));
const programs = groups.map((group, at) => writeProgram(folder, group, at));

linkProgram();
buildTap();
const times = join(ROOT, "build", "test-times.jsonl");
rmSync(times, { force: true });
const env = { ...process.env, KEYBEARER_TEST_TIMES: times, ...(LONG ? { KEYBEARER_LONG: "1" } : {}) };
// Tests wait now and then, so one process more than there are cores keeps the cores busy.
const jobs = `--jobs=${availableParallelism() + 1}`;
const { status } = spawnSync(TAP, [jobs, ...options, ...programs], { cwd: ROOT, stdio: "inherit", env });
printTimes(times);
process.exitCode = status ?? 1;
