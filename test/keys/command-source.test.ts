import { fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { withNext } from "../../src/core/display.ts";
import { type KeyReading, type ReadDeps, readKey } from "../../src/keys/sources.ts";
import { until } from "../doubles/until.ts";
import { isAlive } from "./is-alive.ts";

const KEY = "sk-canary-8f3a1c9d2b7e4f60";
/** So long that a test which waits for it never ends. */
const HOUR_MS = 3_600_000;

/** Writes a shell script and gives its path; $DIR in it is its folder. */
function script(t: Test, body: string): string {
  const folder = realpathSync(t.testdir());
  const path = join(folder, "give-key");
  writeFileSync(path, `#!/bin/sh\nDIR='${folder}'\n${body}\n`, { mode: 0o755 });
  return path;
}

function run(argv: readonly [string, ...string[]], deps: Partial<ReadDeps> = {}): Promise<KeyReading> {
  return readKey({ kind: "command", argv }, { env: { PATH: "/usr/bin:/bin" }, ...deps });
}

function keyOf(reading: KeyReading): string {
  return reading.ok ? reading.key.reveal() : `no key: ${reading.problem}`;
}

function problemOf(reading: KeyReading): string {
  return reading.ok ? `a key: ${reading.key}` : withNext(reading);
}

/** Runs a script past its limit: a small one, and a larger one where the script did not come to note its pid in time. */
async function overTime(program: string): Promise<{ problem: string; pid: number }> {
  const file = join(program, "..", "pid");
  for (let limit = 500; ; limit *= 2) {
    const problem = problemOf(await run([program], { limit }));
    if (existsSync(file)) return { problem, pid: Number(readFileSync(file, "utf8")) };
  }
}

t.test("what a command prints is the key, less one newline", async (t) => {
  t.equal(keyOf(await run([script(t, `echo ${KEY}`)])), KEY);
  t.equal(keyOf(await run([script(t, `printf '${KEY}\\r\\n'`)])), KEY);
  t.match(
    problemOf(await run([script(t, `printf '${KEY}\\n\\n'`)])),
    /incomplete key: the key contains a line break/,
  );
});

t.test("arguments reach the program as they are, without a shell in between", async (t) => {
  const program = script(t, `[ "$1" = '$(touch '"$DIR"'/pwned); *' ] && echo ${KEY}`);
  const folder = realpathSync(join(program, ".."));
  t.equal(keyOf(await run([program, `$(touch ${folder}/pwned); *`])), KEY);
  t.notOk(existsSync(join(folder, "pwned")));
});

t.test("a program must be written with its full path, and must be there", async (t) => {
  t.match(problemOf(await run(["echo", KEY])), /echo is not an absolute path → command -v echo prints it/);
  t.match(problemOf(await run(["/no/such/program", KEY])), /there is no program \/no\/such\/program$/);
  const plain = join(realpathSync(t.testdir({ plain: "text" })), "plain");
  t.match(problemOf(await run([plain, KEY])), /may not run/);
  t.match(problemOf(await run(["/bin/echo", `${KEY}\0`])), /could not be started \(ERR_INVALID_ARG_VALUE\)$/);
});

t.test("a command gets no input, not even what is typed into keybearer", async (t) => {
  const program = join(import.meta.dirname, "read-from-cat.js");
  const reader = fork(program, {
    execArgv: [],
    env: {},
    stdio: ["pipe", "inherit", "inherit", "ipc"],
  });
  reader.stdin?.end(KEY);
  const [describeState] = await once(reader, "message");
  t.match(describeState, /^incomplete key: the key is empty/);
});

t.test("a command inherits the environment, less the variables that hold other keys", async (t) => {
  const program = script(t, `[ -z "\${OTHER_KEY+set}" ] && [ "$VAULT" = yes ] && echo ${KEY}`);
  const env = { PATH: "/usr/bin:/bin", VAULT: "yes", OTHER_KEY: "hidden-from-commands" };
  t.equal(keyOf(await run([program], { env, withhold: ["OTHER_KEY"] })), KEY);
  t.match(problemOf(await run([program], { env })), /exit code 1/);
});

t.test("a command does not start in the folder keybearer was started in", async (t) => {
  t.equal(keyOf(await run([script(t, `[ "$(pwd)" = / ] && echo ${KEY}`)])), KEY);
});

t.test("a command that fails is reported with its exit code and the first line of its message", async (t) => {
  const problem = problemOf(
    await run([script(t, "printf '\\033[31mvault is locked\\033[0m\\nmore\\n' >&2; exit 3")]),
  );
  t.match(problem, /failed with exit code 3: vault is locked$/);
  t.match(problemOf(await run([script(t, "kill -SEGV $$")])), /was ended by SIGSEGV/);
  const long = problemOf(await run([script(t, "printf 'no %.0s' $(seq 1 500) >&2; exit 1")]));
  const [, complaint = ""] = /exit code 1: (.*)$/.exec(long) ?? [];
  t.ok(complaint.startsWith("no no") && complaint.length < 300, "a long complaint is cut");
});

t.test("a secret in a command's complaint is not repeated", async (t) => {
  const shapes = problemOf(await run([script(t, `echo "refused: ${KEY}" >&2; exit 1`)]));
  t.match(shapes, /refused: \[hidden\]/);
  const shapeless = problemOf(
    await run([script(t, "echo hunter-two-; echo 'bad: hunter-two-' >&2; exit 1")]),
  );
  t.match(shapeless, /bad: \[redacted\]/);
  const cut = problemOf(await run([script(t, `printf '%0190d ${KEY}' 0 >&2; exit 1`)]));
  t.notMatch(cut, "sk-can", "a secret across the cut is hidden as well");
});

t.test("output of more than 64 KB ends the command", async (t) => {
  t.match(problemOf(await run(["/usr/bin/yes", KEY])), /printed more than 64 KB/);
});

t.test("a flood of complaints does not stall a command", async (t) => {
  t.equal(keyOf(await run([script(t, `head -c 1000000 /dev/zero >&2; echo ${KEY}`)])), KEY);
});

t.test("binary output is no key", async (t) => {
  const problem = problemOf(await run([script(t, "printf '\\377\\376\\000key-with-bytes'")]));
  t.match(problem, /incomplete key: the key contains a character that is not plain ASCII/);
});

t.test("a command over its time is ended with everything it started", async (t) => {
  const program = script(t, 'sleep 300 & echo $! > "$DIR/pid.new"; mv "$DIR/pid.new" "$DIR/pid"; wait');
  const { problem, pid } = await overTime(program);
  t.match(problem, /did not finish within [\d.]+ s and was ended/);
  t.ok(pid > 1);
  await until("what it started is ended", () => !isAlive(pid));
});

t.test("a child that holds the output open does not delay the reader", async (t) => {
  const program = script(t, `sleep 3600 & echo $! > "$DIR/pid"; echo ${KEY}`);
  t.equal(keyOf(await run([program], { limit: HOUR_MS })), KEY);
  process.kill(Number(readFileSync(join(program, "..", "pid"), "utf8")));
});

const noSetsid = existsSync("/usr/bin/setsid") ? false : "no setsid on this system";
t.test("what left the process group delays no reader past the limit", { skip: noSetsid }, async (t) => {
  const program = script(
    t,
    'setsid sh -c \'echo $$ > "$0/pid.new"; mv "$0/pid.new" "$0/pid"; exec sleep 3600\' "$DIR" & wait',
  );
  const { problem, pid } = await overTime(program);
  t.match(problem, /did not finish/);
  process.kill(pid);
});

t.test("a command that is canceled while it starts is ended", async (t) => {
  const stop = new AbortController();
  const reading = run([script(t, "exec sleep 3600")], { signal: stop.signal, limit: HOUR_MS });
  stop.abort();
  t.match(problemOf(await reading), /was not read/);
});

t.test("a command whose result is no longer needed is ended", async (t) => {
  const program = script(t, 'echo $$ > "$DIR/pid.new"; mv "$DIR/pid.new" "$DIR/pid"; exec sleep 300');
  const stop = new AbortController();
  const reading = run([program], { signal: stop.signal });
  const file = join(program, "..", "pid");
  await until("it runs", () => existsSync(file));
  stop.abort();
  t.match(problemOf(await reading), /was not read/);
  await until("it is ended", () => !isAlive(Number(readFileSync(file, "utf8"))));
  t.match(problemOf(await run([program], { signal: stop.signal })), /was not read/, "nor is it started");
});
