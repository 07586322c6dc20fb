// Runs the compiled tests with tap: `npm run tap` all of them, `npm run tap -- test/core/token.test.ts` one file,
// `npm run tap -- test/core` a folder. Options of tap may follow. At the end it prints the seconds of each file.
//
// There are two suites. Without --long: all files but those named *.long.test.ts. With it: those, and the files that repeat
// more there (they import doubles/effort.ts). With --checks the linter and the types are checked, too, beside the tests.
//
// Starting a process takes longer than most test files run. So up to 32 files share a process, which runs them one after
// the other (run-files.mjs). The processes are started here and not by tap, whose loaders (for coverage and mocks) cost each of
// them 1.8 seconds of CPU; tap reads what they print, and reports it.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism } from "node:os";
import { basename, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const FILES_PER_PROCESS = 32;
/** Of a process. No test needs it; one that hangs ends all the same. */
const TIMEOUT_SECONDS = "1800";
const LONG = process.argv.includes("--long");
const CHECKS = process.argv.includes("--checks");
const BIN = join(ROOT, "node_modules/.bin");
const TAP = join(BIN, "tap");

/**
 * These folders have the longest files. They come first, so that no long file runs alone at the end, and their files share
 * processes only within the folder.
 */
const FIRST = [
  "test/service",
  "test/cli",
  "test/journeys",
  "test/shared",
  "test/dashboard",
  "test/threats",
  "test/security",
  "test/config",
];

/** A change of the root test would affect all files of the process, so such a file has its own process. */
const CHANGES_ROOT_TEST = /^t\.(?:before|beforeEach|after|afterEach|teardown|setTimeout|plan|bailout)\b/m;

/** Many times what the tests' temporary files take at once. */
const ROOM = 1024 ** 3;

/** These have their own process, too. */
const ALONE = new Set([
  // Longer than the rest of their folders together.
  "test/dashboard/browser.test.ts",
  "test/shared/chaos.long.test.ts",
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
 * Bundles the worker threads, as dist has them. A thread of separate modules takes 94 ms of CPU to start instead of 58, and
 * the tests start hundreds.
 */
function bundleWorkers() {
  for (const worker of ["mirror/sync/mirror-worker.js", "usage/index/index-worker.js"]) {
    const file = join(ROOT, "build", "src", worker);
    buildSync({
      entryPoints: [file],
      outfile: file,
      allowOverwrite: true,
      bundle: true,
      platform: "node",
      format: "esm",
      packages: "external",
    });
  }
}

/** Messages name the command as it was called, and the tests compare them with those of an installed keybearer. */
function linkProgram() {
  const bin = join(ROOT, "build", "bin");
  rmSync(bin, { recursive: true, force: true });
  mkdirSync(bin, { recursive: true });
  symlinkSync(join(ROOT, "dist", "cli", "main.js"), join(bin, "keybearer"));
}

/** Such as: # { total: 355, pass: 353, fail: 1, skip: 1 } */
const TOTALS = /^# \{ (total: .*) \}$/m;

/** To lay out a difference of a megabyte takes tap more than ten minutes. What failed is printed before it. */
const REPORT_LIMIT = { timeout: 60_000, killSignal: "SIGKILL" };

function isTest(file) {
  return file.endsWith(".tap");
}

/**
 * The tests make thousands of folders with databases, and each of them waits for the disk again and again. So npm test makes
 * them in memory where Linux has room for them and programs may be started there; the long suite makes them on the disk.
 * Returns the folder for all of them, which is removed at the end; null: the usual one.
 */
function makeFolderInMemory() {
  const memory = "/dev/shm";
  if (LONG || process.env.TMPDIR !== undefined || !existsSync(memory)) return null;
  const mounts = readFileSync("/proc/mounts", "utf8").split("\n");
  const [, , kind, options = ""] = mounts.find((line) => line.split(" ")[1] === memory)?.split(" ") ?? [];
  const { bavail, bsize } = statfsSync(memory);
  if (kind !== "tmpfs" || options.split(",").includes("noexec") || bavail * bsize < ROOM) return null;
  const folder = mkdtempSync(join(memory, "kb"));
  // As /tmp has it: some tests are two users.
  chmodSync(folder, 0o1777);
  process.on("exit", () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => process.exit(1));
  return folder;
}

/** A line for each test that failed, with its file. A failed assertion comes before the test that it belongs to. */
function failuresIn(text) {
  const failures = [];
  let file = "";
  for (const line of text.split("\n")) {
    const named = /^# Subtest: (test\/.*\.ts)$/.exec(line);
    if (named !== null) file = named[1];
    if (/^ *not ok /.test(line) || line.startsWith("Bail out!")) failures.push(`${file}: ${line.trim()}`);
  }
  return failures;
}

/** Starts jobs one after the other, as long as there are any. What each prints is in its file. */
async function runLane(jobs) {
  const ended = [];
  for (const { name, command, args, file } of jobs) {
    const output = openSync(file, "w");
    const begun = performance.now();
    const child = spawn(command, args, { cwd: ROOT, env, stdio: ["ignore", output, "inherit"] });
    const [code, signal] = await once(child, "close");
    let isMissing = false;
    closeSync(output);
    if (signal !== null) appendFileSync(file, `\nBail out! the process was ended by ${signal}\n`);
    else if (code === 0 && isTest(file) && !TOTALS.test(readFileSync(file, "utf8"))) {
      appendFileSync(file, "\nBail out! the process ended without a result\n");
      isMissing = true;
    }
    const seconds = ((performance.now() - begun) / 1000).toFixed(1).padStart(6);
    const ok = code === 0 && !isMissing;
    process.stdout.write(`${ok ? "ok    " : "FAILED"} ${seconds} s  ${name}\n`);
    // Here too, because a run takes minutes and its last lines may be cut.
    if (!ok && isTest(file))
      for (const failure of failuresIn(readFileSync(file, "utf8"))) process.stdout.write(`  ${failure}\n`);
    ended.push({ file, ok });
  }
  return ended;
}

function testJob(program) {
  return {
    name: basename(program, ".js"),
    command: process.execPath,
    args: [...SOURCE_MAPS, program],
    file: program.replace(/js$/, "tap"),
  };
}

/** The other core has tests to run, and with several threads the compiler checks some types once in each. */
const ONE_THREAD = "--singleThreaded";

/** These run beside the tests. */
function checkJobs(folder) {
  return [
    { name: "types", command: "tsc", args: ["-p", "test", "--noEmit", ONE_THREAD] },
    { name: "lint", command: "biome", args: ["check", "."] },
    { name: "types-of-the-page", command: "tsc", args: ["-p", "src/dashboard/page", ONE_THREAD] },
  ].map((job) => ({ ...job, command: join(BIN, job.command), file: join(folder, `${job.name}.txt`) }));
}

/** Reports what failed, what was skipped and why, and how many tests there were. Returns the exit code. */
function report(ended) {
  const failed = ended.filter(({ ok }) => !ok).map(({ file }) => file);
  const failedTests = failed.filter(isTest);
  if (failedTests.length > 0)
    spawnSync(TAP, ["--reporter=min", ...failedTests], { cwd: ROOT, stdio: "inherit", ...REPORT_LIMIT });
  const counts = { pass: 0, fail: 0, skip: 0 };
  for (const { file } of ended.filter((each) => isTest(each.file))) {
    const text = readFileSync(file, "utf8");
    for (const [, title, reason] of text.matchAll(/^ *ok \d+ - (.*) # SKIP (.*)$/gm))
      process.stdout.write(`skipped: ${title}: ${reason}\n`);
    const [, totals = ""] = TOTALS.exec(text) ?? [];
    for (const [, name, count] of totals.matchAll(/(\w+): (\d+)/g))
      if (name in counts) counts[name] += Number(count);
  }
  process.stdout.write(`${counts.pass} passed, ${counts.fail} failed, ${counts.skip} skipped\n`);
  // Last, where they are seen.
  for (const file of failed.filter((each) => !isTest(each))) process.stdout.write(readFileSync(file, "utf8"));
  return failed.length === 0 ? 0 : 1;
}

/** Prints the seconds of each file, of the CPU, and of the CPU in programs that it started, slowest first. */
function printTimes(times) {
  if (!existsSync(times)) return;
  const rows = readFileSync(times, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  rows.sort((a, b) => b.seconds - a.seconds);
  for (const { seconds, cpu, programs, file } of rows) {
    const columns = [seconds, cpu, programs].map((each) => each.toFixed(1).padStart(7));
    process.stdout.write(`${columns[0]} s ${columns[1]} CPU ${columns[2]} programs  ${file}\n`);
  }
}

const args = process.argv.slice(2).filter((arg) => arg !== "--long" && arg !== "--checks");
const named = args.filter((arg) => !arg.startsWith("-")).map((path) => relative(ROOT, resolve(path)));
const options = args.filter((arg) => arg.startsWith("-"));
// A file that is named runs, whichever suite it belongs to.
const isNamed = (file) => named.includes(file);
const files = (named.length > 0 ? named : ["test"])
  .flatMap(testFilesBelow)
  .filter((file) => isNamed(file) || isChosen(file));

/** Each assertion notes where it is. With source maps that takes a twentieth of the suite's CPU time. */
const SOURCE_MAPS = named.length > 0 ? ["--enable-source-maps"] : [];
const folder = join(ROOT, "build", named.length > 0 ? "named" : "programs");
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const groups = groupsOf(files).sort((a, b) => position(a) - position(b));
const programs = groups.map((group, at) => writeProgram(folder, group, at));

linkProgram();
bundleWorkers();
const times = join(ROOT, "build", "test-times.jsonl");
rmSync(times, { force: true });
const memory = makeFolderInMemory();
const env = {
  ...process.env,
  KEYBEARER_TEST_TIMES: times,
  TAP_TIMEOUT: TIMEOUT_SECONDS,
  ...(LONG ? { KEYBEARER_LONG: "1" } : {}),
  ...(memory === null ? {} : { TMPDIR: memory }),
};
if (options.length > 0) {
  // Options of tap, such as those for coverage, need its loaders.
  const { status } = spawnSync(TAP, [...options, ...programs], { cwd: ROOT, stdio: "inherit", env });
  process.exitCode = status ?? 1;
} else {
  // Tests wait now and then, so one process more than there are cores keeps the cores busy.
  const queue = [...(CHECKS ? checkJobs(folder) : []), ...programs.map(testJob)].values();
  const lanes = Array.from({ length: availableParallelism() + 1 }, () => runLane(queue));
  const ended = (await Promise.all(lanes)).flat();
  printTimes(times);
  process.exitCode = report(ended);
}
