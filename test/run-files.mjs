// What the programs in build/programs/ run: a few compiled test files in one process, one after the other.
import processOnSpawn from "process-on-spawn";
import t from "tap";

/**
 * Runs test files. Each is loaded when the tests of the one before are over, so that what a file does while it is loaded
 * cannot disturb another file's tests.
 */
export async function runFiles(files) {
  startProgramsWithoutTap();
  const env = { ...process.env };
  for (const file of files) {
    // tap runs one test after the other, so this waits for those of the file before. It also names the next file.
    await t.test(file, async () => {});
    restore(env);
    await import(new URL(`../build/${file.replace(/\.ts$/, ".js")}`, import.meta.url).href);
  }
}

/**
 * tap adds its loaders to the environment of every program that is started here. Each program would need most of a
 * second longer to start, and would not have the environment that the test gives it.
 */
function startProgramsWithoutTap() {
  processOnSpawn.removeAllListeners();
  delete process.env.NODE_OPTIONS;
}

/** Some files set the time zone and leave it so. */
function restore(env) {
  for (const name of Object.keys(process.env)) {
    if (!(name in env)) delete process.env[name];
  }
  Object.assign(process.env, env);
}
