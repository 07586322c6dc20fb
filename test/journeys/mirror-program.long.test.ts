import { join } from "node:path";
import t, { type Test } from "tap";
import { advice } from "../../src/core/advice.ts";
import type { MirrorReport } from "../../src/mirror/report/shape.ts";
import { openMirrorForReading } from "../../src/mirror/store/database.ts";
import { advised, command, newHome, saveConfig, startServing } from "../doubles/command.ts";
import type { ConsoleDouble } from "../doubles/consoles/console-double.ts";
import { startConsole } from "../doubles/consoles/start-console.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import {
  type Callers,
  configFor,
  controlOf,
  DAY,
  fingerprint,
  MINUTE,
  startJourney,
} from "../doubles/mirror-journey.ts";
import { atScreen } from "../doubles/screen.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";

t.test(
  "mirror shows matched rows, and exits 1 in words and JSON until an alarm is acknowledged",
  async (t) => {
    const journey = await startJourney(t, "sub2api");
    const run = (...args: string[]) => command(t, journey.home, args);
    await journey.idle();
    journey.clock.pass(MINUTE);
    await journey.ask();
    await journey.ask({ "x-test-row-output": "50", "x-test-input": "31" });
    journey.clock.pass(MINUTE);
    await journey.sync();
    const calm = await run("mirror");
    t.equal(calm.code, 0, calm.stderr);
    t.match(calm.stdout, /2 rows: 1 by id/);
    t.match(calm.stdout, /0 foreign/);
    const diff = await run(...advised(t, calm.stdout, advice.mirrorDiff()));
    t.match(diff.stdout, /differs/);
    const [, row = ""] = /mirror show (\S+)/.exec(diff.stdout) ?? [];
    const one = await run(...advised(t, diff.stdout, advice.mirrorShow(row)));
    t.match(one, { code: 0, stdout: /^main: differs[\s\S]*\noutput +\d+ +50\n/ });

    journey.elsewhere({ model: "stolen-model", dollars: 0.25 });
    journey.clock.pass(MINUTE);
    const synced = await run("mirror", "sync");
    t.match(synced.stdout + synced.stderr, /outside keybearer/, "a sync reports it at once");
    const alarmed = await run("mirror");
    t.equal(alarmed.code, 1);
    const words = alarmed.stdout + alarmed.stderr;
    for (const word of [fingerprint(journey.codex.key), "codex", "stolen-model", "0.25", "rotate", "ack"]) {
      t.ok(words.includes(word), `it says ${word}:\n${words}`);
    }
    const json = await run("mirror", "--json");
    t.equal(json.code, 1, "in JSON, too");
    t.match(JSON.parse(json.stdout), [{ alarms: [{ count: 1 }] }]);
    t.match((await run("status")).stdout, /outside keybearer/);
    const ack = await run("mirror", "ack");
    t.not(ack.code, 0, "it needs a terminal");
    t.equal((await run("mirror")).code, 1);
    const person = atScreen(t, journey.home, advised(t, alarmed.stdout, advice.mirrorAck("main")));
    await person.says(/\[y\/N\]/);
    person.type("y\r");
    t.match(await person.ended, { code: 0, stdout: /acknowledged 1 row/ });
    t.equal((await run("mirror")).code, 0);
    const keys = await run("keys");
    t.match(keys.stdout, /codex/);
    t.notOk((words + keys.stdout + json.stdout).includes(journey.codex.key));
  },
);

/** A home of its own for the built program, beside a console on the real clock. */
async function startHome(t: Test, console: ConsoleDouble, callers?: Callers) {
  const home = await newHome(t);
  const made = configFor(console, callers === undefined ? {} : { callers });
  await saveConfig(home, `listen: localhost:0\n${made.config()}`);
  const socket = join(home, "run", "control.sock");
  const report = async () => {
    const [one] = await controlOf<MirrorReport[]>(socket, "GET", "/mirror");
    if (one === undefined) throw new Error("no console is mirrored");
    return one;
  };
  const settled = () =>
    until("it was read through", async () => !["syncing", "waiting"].includes((await report()).state));
  return { home, callers: made.callers, socket, report, settled, state: join(home, "state") };
}

function contentOf(state: string): unknown[] {
  const { db, close } = openMirrorForReading({
    file: join(state, "mirror.db"),
    index: join(state, "index.db"),
  });
  const rows = db.prepare("SELECT * FROM mirror.console_rows ORDER BY identity").raw().all();
  close();
  return rows;
}

/** Rows for several pages, and the page at which the daemon is killed. one-api has ten rows a page. */
const PAGES = [
  ["new-api v0.13.2", 450, 3],
  ["sub2api", 2200, 3],
  ["one-api", 90, 9],
] as const;

for (const [name, many, last] of PAGES) {
  t.test(`${name}: a daemon that is killed between two pages reads the rest, and no row twice`, async (t) => {
    const console = await startConsole(t, name, { balance: 1e6 });
    const { home, callers, report, settled, state } = await startHome(t, console);
    const key = callers.codex?.key ?? "";
    console.addKey({ name: "codex", key });
    for (let n = 0; n < many; n += 1) {
      const at = Date.now() - DAY + n * 20_000;
      console.bill({ key, model: `m${n % 3}`, stream: false, input: n, output: 5, dollars: 0.001, at });
    }
    let pages = 0;
    console.onAsk = ({ path }) => {
      if (!/usage\?|log\/self\?/.test(path)) return;
      pages += 1;
      if (pages === last) console.fault = "slow";
    };
    const first = await startServing(t, home);
    await until("it is in the middle", () => console.fault === "slow");
    first.child.kill("SIGKILL");
    await first.ended;
    t.ok(
      contentOf(state).length > 0 && contentOf(state).length < many,
      `${contentOf(state).length} rows so far`,
    );
    console.fault = null;
    await serveIn(t, home);
    await settled();
    t.equal((await report()).rows.before, many);

    const whole = await startHome(t, console, callers);
    await serveIn(t, whole.home);
    await whole.settled();
    t.strictSame(contentOf(state), contentOf(whole.state), "the same as without the kill");
  });
}

t.test("a daemon that is killed during a stream takes the request from the console", async (t) => {
  const console = await startConsole(t, "sub2api");
  const { home, callers, report, settled, socket, state } = await startHome(t, console);
  const codex = callers.codex;
  if (codex === undefined) throw new Error("there is no tool");
  console.addKey({ name: "codex", key: codex.key });
  const first = await startServing(t, home);
  await settled();
  const answer = await fetch(`${first.url}/v1/chat/completions`, {
    method: "POST",
    headers: {
      ...{ authorization: `Bearer ${codex.token}`, "content-type": "application/json" },
      ...{ "x-test-hang-in-body": "1", "x-test-input": "61", "x-test-output": "17" },
    },
    body: JSON.stringify({ model: "m", stream: true, messages: [] }),
  });
  const reading = answer.text().catch(() => "cut");
  first.child.kill("SIGKILL");
  await first.ended;
  t.equal(await reading, "cut");
  await until("the console has its row", () => console.rows.length === 1);
  await serveIn(t, home);
  await settled();
  await controlOf(socket, "POST", "/sync/main", {});
  await settled();
  const { rows } = await report();
  t.strictSame(
    [rows.total, rows.by_id, rows.foreign_certain, rows.pending],
    [1, 1, 0, 0],
    JSON.stringify(rows),
  );
  t.match(recordsIn(join(state, "usage")), [
    { end: "interrupted", tokens_from: "console", input_tokens: 61, output_tokens: 17 },
  ]);
});
