// Runs a few compiled test files in one process, one after the other. Called by the programs that run.mjs writes.
import { appendFileSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import processOnSpawn from "process-on-spawn";
import t from "tap";

/** The unit of /proc, on every system that Node runs on. */
const TICKS_PER_SECOND = 100;

/** Loads each file after the tests of the previous one ended, because loading a file may disturb running tests. */
export async function runFiles(files) {
  startProgramsWithoutTap();
  watchNoPromises();
  // A command that runs in this process starts the program by this name.
  process.argv[1] = fileURLToPath(new URL("../build/bin/keybearer", import.meta.url));
  const env = { ...process.env };
  const times = timesOfFiles();
  for (const file of files) {
    // A test without a buffer waits for all tests before it: those of the previous file. It also prints this file's name.
    await t.test(file, { buffered: false }, async () => {});
    // A file whose tests mostly wait sets t.jobs.
    t.jobs = 1;
    times.begin(file);
    restore(env);
    await import(new URL(`../build/${file.replace(/\.ts$/, ".js")}`, import.meta.url).href);
  }
}

/** Appends the seconds of each file to the file that run.mjs prints at the end. The last file ends with the process. */
function timesOfFiles() {
  const path = process.env.KEYBEARER_TEST_TIMES;
  let running = null;
  function end() {
    if (running === null || path === undefined) return;
    const seconds = (performance.now() - running.at) / 1000;
    // Of this process with its threads.
    const { user, system } = process.cpuUsage(running.used);
    const row = {
      file: running.file,
      seconds: rounded(seconds),
      cpu: rounded((user + system) / 1e6),
      programs: rounded(cpuOfPrograms() - running.usedByPrograms),
    };
    appendFileSync(path, `${JSON.stringify(row)}\n`);
  }
  process.on("exit", end);
  return {
    begin(file) {
      end();
      running = {
        file,
        at: performance.now(),
        used: process.cpuUsage(),
        usedByPrograms: cpuOfPrograms(),
      };
    },
  };
}

/** The CPU seconds of the programs that this process started, once they have ended. 0 where the system does not say. */
function cpuOfPrograms() {
  try {
    // The second field, the name, may have spaces and ends with a bracket. These are the fields cutime and cstime.
    const [, fields = ""] = /\) (.*)/.exec(readFileSync("/proc/self/stat", "utf8")) ?? [];
    const [user, system] = fields.split(" ").slice(13, 15);
    return (Number(user) + Number(system)) / TICKS_PER_SECOND;
  } catch {
    // Not Linux.
    return 0;
  }
}

/**
 * tap adds its loaders to the environment of every program that a test starts. They delay the start by most of a second, and
 * the program would not have exactly the environment that the test gives it.
 */
function startProgramsWithoutTap() {
  processOnSpawn.removeAllListeners();
  delete process.env.NODE_OPTIONS;
}

/**
 * tap watches every promise, to find the test that an uncaught error belongs to. That takes a seventh of the CPU time of tests
 * with daemons. Without it, such an error ends the process and is printed.
 */
function watchNoPromises() {
  // The watcher of the whole process is made when the results are piped, which would otherwise happen with the first one.
  t.pipe(process.stdout);
  t.hook.onDestroy?.();
  stopWatcher(t);
}

/** Each test has one as soon as it is added. The promises are watched until the last one is destroyed. */
function stopWatcher(test) {
  test.hookDomain.destroy();
  test.on("subtestAdd", stopWatcher);
}

/** Some files change the time zone and do not reset it. */
function restore(env) {
  for (const name of Object.keys(process.env)) {
    if (!(name in env)) delete process.env[name];
  }
  Object.assign(process.env, env);
}

function rounded(seconds) {
  return Number(seconds.toFixed(1));
}
