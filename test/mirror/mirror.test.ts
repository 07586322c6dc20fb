import pino from "pino";
import t, { type Test } from "tap";
import { Snapshot } from "../../src/config/snapshot.ts";
import { Secret } from "../../src/core/secret.ts";
import type { MirrorDeps } from "../../src/mirror/gateway-mirror.ts";
import { Mirror } from "../../src/mirror/mirror.ts";
import { heldTimes } from "../../src/mirror/store/keys.ts";
import type { MirrorUsage } from "../../src/mirror/usage.ts";
import type { AckLine, KeyHeldLine } from "../../src/usage/journal/lines.ts";
import { longTest } from "../doubles/effort.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { record } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";
import { AT, compareAll, HOUR, mirrorFile, openMirror, page, row } from "./mirror-file.ts";

const CONFIG = `gateways: { main: { base_url: "https://gateway.example.com/v1" } }
tools: { codex: {} }
`;
const KEY = "sk-0123456789abcdef0123456789abcdefa1b2";

/** A mirror without consoles. Its database cannot be asked before `isReady` says so. */
function startMirror(t: Test, state: string, isReady: () => boolean, catchUp: () => Promise<void>) {
  const lines: (AckLine | KeyHeldLine)[] = [];
  const database = openMirror(state);
  t.teardown(() => database.close());
  const usage: MirrorUsage = {
    catchUp,
    amend: () => true,
    append: (line) => lines.push(line),
    last: () => null,
  };
  const key = { state: "ready", key: new Secret(KEY) } as const;
  const snapshot = new Snapshot(1, configOf(CONFIG), new Map([["codex", key]]), []);
  const mirror = new Mirror({
    clock: { now: () => AT + HOUR, elapsed: () => 0 },
    log: pino({ level: "silent" }),
    snapshot: () => snapshot,
    database: {
      ask: (question) => (isReady() ? database.ask(question) : null),
      files: database.files,
      noteDamage: () => {},
    },
    usage,
    lostRecords: { gaps: () => [] },
    siblings: () => [],
    onAcknowledged: () => {},
    // Without a console these are not used.
    ...({} as Pick<
      MirrorDeps,
      "vault" | "agentFor" | "prices" | "onCorrected" | "onJudged" | "onAlarms" | "isChanging" | "keyCalls"
    >),
  });
  t.teardown(() => mirror.stop());
  return { mirror, lines, snapshot };
}

longTest(t, "held keys are written to the journal as soon as there is an index", async (t) => {
  const { state, db } = mirrorFile(t);
  let isReady = false;
  const catchUp = async () => {
    await new Promise((done) => setImmediate(done));
    isReady = true;
  };
  const { mirror, lines, snapshot } = startMirror(t, state, () => isReady, catchUp);
  mirror.forget("main");
  mirror.change(snapshot);
  t.same(lines, []);
  await until("the keys are in the journal", () => lines.length > 0);
  const line = { kind: "key-held", gateway: "main", key: "…a1b2", tool: "codex", until: null };
  t.same(
    lines,
    [{ ...line, since: AT + HOUR }],
    "what was to be forgotten is forgotten first, so it begins now",
  );
  t.equal(heldTimes(db, "main").get("…a1b2")?.since, AT + HOUR);
  mirror.change(snapshot);
  t.equal(lines.length, 1, "what does not change is not written again");
});

t.test("each acknowledged row is in the journal, and only shown rows are acknowledged", async (t) => {
  const file = mirrorFile(t, [record(1)]);
  page(file.db, [row(1), row(2), row(3)]);
  compareAll(file);
  const { mirror, lines } = startMirror(
    t,
    file.state,
    () => true,
    async () => {},
  );
  const shown = { gateway: "main", key: null, certain: null, last_at: null, count: 3 };
  t.equal(await mirror.acknowledge(shown, "me"), null, "there are others than those that were shown");
  t.equal(await mirror.acknowledge({ ...shown, count: 1 }, "me"), null, "there are more");
  t.same(lines, []);
  t.equal(await mirror.acknowledge({ ...shown, count: 2 }, "me"), 2);
  t.same(lines, [
    { kind: "ack", gateway: "main", row: "row-2", certain: true, at: AT + HOUR },
    { kind: "ack", gateway: "main", row: "row-3", certain: true, at: AT + HOUR },
  ]);
});
