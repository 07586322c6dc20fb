import { Agent } from "node:http";
import { join } from "node:path";
import type Database from "libsql";
import t, { type Test } from "tap";
import { type KeyState, Snapshot } from "../../src/config/snapshot.ts";
import { Secret } from "../../src/core/secret.ts";
import { Prices } from "../../src/metering/prices.ts";
import { ConsoleAccount } from "../../src/mirror/connect/account.ts";
import { hasConsole } from "../../src/mirror/consoles/console.ts";
import { KeyCallBudgets } from "../../src/mirror/consoles/key-calls.ts";
import { GatewayMirror, type MirrorDeps } from "../../src/mirror/gateway-mirror.ts";
import { HeldKeys } from "../../src/mirror/held-keys.ts";
import type { Sibling } from "../../src/mirror/reconcile/siblings.ts";
import { readFact, readTime } from "../../src/mirror/store/facts.ts";
import { holdKeys } from "../../src/mirror/store/keys.ts";
import { MirrorReader } from "../../src/mirror/sync/mirror-thread.ts";
import type { LastRecord } from "../../src/mirror/usage.ts";
import { Vault } from "../../src/mirror/vault.ts";
import type { ConsoleDouble } from "../doubles/consoles/console-double.ts";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { longTest } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { configOf } from "../doubles/parsed-config.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { record } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";
import { all, MINUTE, mirrorFile, openMirror } from "./mirror-file.ts";

const KEY = "sk-0123456789abcdef0123456789abcdefa1b2";

interface MirrorOptions {
  /** Requests with one key in the minute after the first sync. */
  readonly requests: number;
  /** Without an access token, each key lists its own latest 1,000 rows. */
  readonly accessToken: boolean;
  readonly siblings?: () => readonly Sibling[];
  /** The newest record in the journal. */
  readonly last?: () => LastRecord | null;
  /** How many tools have a key. Default 1. */
  readonly keys?: number;
  /** Whether an unfinished change knows a key of the console. Default: none. */
  readonly isChanging?: MirrorDeps["isChanging"];
  /** Whether the database can be used. Default: always. */
  readonly isReady?: () => boolean;
}

/** The mirror of a new-api console. */
async function startMirror(
  t: Test,
  {
    requests,
    accessToken,
    siblings = () => [],
    last = () => null,
    keys = 1,
    isChanging = () => false,
    isReady = () => true,
  }: MirrorOptions,
) {
  const tools = ["codex", ...Array.from({ length: keys - 1 }, (_, number) => `tool-${number}`)];
  const keyOf = (tool: string) => (tool === "codex" ? KEY : KEY.replace("a1b2", tool.replace("-", "")));
  const clock = heldClock();
  const double = await startNewApi(t, { now: clock.now });
  for (const name of tools) double.addKey({ name, key: keyOf(name) });
  const started = { started_at: clock.now() + 1000, ended_at: clock.now() + 2000 };
  const records = Array.from({ length: requests }, (_, number) => record(number, started));
  const file = mirrorFile(t, records);
  const { state } = file;
  const database = openMirror(state);
  const states = tools.map((name): [string, KeyState] => [
    name,
    { state: "ready", key: new Secret(keyOf(name)) },
  ]);
  const snapshotFor = (url: string) => {
    const config = configOf(`gateways:
  main: { base_url: "${url}/v1", console: { kind: new-api, url: "${url}" } }
tools: { ${tools.map((name) => `${name}: {}`).join(", ")} }
`);
    return new Snapshot(1, config, new Map(states), []);
  };
  let snapshot = snapshotFor(double.url);
  const vault = new Vault(join(state, "consoles.json"), clock);
  await vault.load();
  const keyCalls = new KeyCallBudgets(() => clock.now(), null);
  const logIn = async () => {
    const gateway = consoleGateway(snapshot);
    const [login] = gateway.console.logins;
    if (login === undefined) throw new Error("main has no account");
    const account = new ConsoleAccount(gateway, login, { snapshot: () => snapshot, vault, keyCalls });
    const { accessToken, user } = double.login;
    await account.store({ accessToken: new Secret(accessToken), user });
  };
  if (accessToken) await logIn();
  const reader = new MirrorReader(database, quietLog());
  const agent = new Agent();
  const deps = {
    clock,
    log: quietLog(),
    snapshot: () => snapshot,
    vault,
    agentFor: () => agent,
    database: {
      ask: <T>(question: (db: Database.Database) => T) => (isReady() ? database.ask(question) : null),
      files: database.files,
      noteDamage: () => database.noteDamage(),
    },
    usage: {
      catchUp: async () => {},
      amend: () => true,
      append: () => {},
      last,
    },
    prices: new Prices({ models: [] }),
    lostRecords: { gaps: () => [] },
    siblings,
    onCorrected: () => {},
    onJudged: () => {},
    onAlarms: () => {},
    onAcknowledged: () => {},
    isChanging,
    keyCalls,
    reader,
  };
  const mirror = new GatewayMirror(consoleGateway(snapshot), snapshot, deps, new HeldKeys(deps));
  /** Another console has the gateway's name from now on. */
  const moveTo = async (other: ConsoleDouble) => {
    snapshot = snapshotFor(other.url);
    if (accessToken) await logIn();
    mirror.change(consoleGateway(snapshot), snapshot);
  };
  t.teardown(async () => {
    await mirror.stop();
    await reader.stop();
    database.close();
    agent.destroy();
  });
  return { mirror, double, clock, file, moveTo };
}

function consoleGateway({ config }: Snapshot) {
  const gateway = Object.values(config.gateways).find(hasConsole);
  if (gateway === undefined) throw new Error("main has no console");
  return gateway;
}

longTest(
  t,
  "a key is read early when its requests approach the number of rows that are listed",
  async (t) => {
    for (const { requests, accessToken, early } of [
      { requests: 500, accessToken: false, early: false },
      { requests: 700, accessToken: false, early: true },
      { requests: 1500, accessToken: true, early: false },
    ]) {
      const { mirror, double, clock } = await startMirror(t, { requests, accessToken });
      await mirror.syncIfBusy();
      t.equal(double.asked.length, 0, "not before the first sync");
      await mirror.sync();
      const first = await mirror.status();
      t.match(first, { state: "ok", last_sync: clock.now() }, first.why ?? "");
      clock.pass(MINUTE);
      await mirror.syncIfBusy();
      const isRead = (await mirror.status()).last_sync === clock.now();
      t.equal(isRead, early, `${requests} requests, ${accessToken ? "with" : "without"} an access token`);
      clock.pass(MINUTE);
      const asked = double.asked.length;
      await mirror.syncIfBusy();
      t.equal(double.asked.length > asked, false, "and once is enough");
    }
  },
);

t.test("a sync that is asked for while another one runs has the newest rows, too", async (t) => {
  const { mirror, double } = await startMirror(t, { requests: 0, accessToken: true });
  await mirror.sync();
  const once = double.asked.length;
  const inFlight = mirror.sync();
  mirror.startSync();
  mirror.startSync();
  await inFlight;
  const twice = double.asked.length;
  await mirror.sync();
  t.equal(twice - once, 2 * (double.asked.length - twice), "one more sync followed it");
});

t.test("a row that waits for another machine is compared again without reading the console", async (t) => {
  let laptop: Sibling = { name: "laptop", seenUntil: 0, keys: ["…a1b2"], isStopped: false, isVerified: true };
  const { mirror, double, clock } = await startMirror(t, {
    requests: 0,
    accessToken: true,
    siblings: () => [laptop],
  });
  laptop = { ...laptop, seenUntil: clock.now() };
  const use = { key: KEY, model: "gpt-5.1", stream: true, input: 100, output: 7, dollars: 0.1 };
  clock.pass(2 * MINUTE);
  double.bill(use);
  clock.pass(2 * MINUTE);
  await mirror.sync();
  const waiting = await mirror.report();
  t.match(waiting, {
    rows: { unwatched: 1 },
    alarms: [],
    unseen_machines: [{ machine: "laptop", since: clock.now() - 4 * MINUTE }],
  });
  const asked = double.asked.length;
  laptop = { ...laptop, seenUntil: clock.now() - 3 * MINUTE };
  await mirror.compareIfSeen();
  t.match(await mirror.report(), { rows: { unwatched: 1 }, alarms: [] }, "the machine is still behind");
  laptop = { ...laptop, seenUntil: clock.now() };
  await mirror.compareIfSeen();
  t.match(await mirror.report(), {
    rows: { unwatched: 0 },
    alarms: [{ key: "…a1b2", certain: false, count: 1 }],
    unseen_machines: [],
  });
  t.equal(double.asked.length, asked);
});

longTest(
  t,
  "an old record of another machine is not missing if the console was never read that far",
  async (t) => {
    const { mirror, clock, file } = await startMirror(t, { requests: 0, accessToken: true });
    await mirror.sync();
    const coveredFrom = readTime(file.db, "main", "covered_from");
    t.equal(coveredFrom, clock.now() - 30 * 24 * 60 * MINUTE);
    const old = record(1, { started_at: clock.now() - 60 * 24 * 60 * MINUTE });
    file.append([{ kind: "sibling", ...old, machine: "laptop", machine_id: "machine-1", verified: true }]);
    file.catchUp();
    await mirror.sync();
    t.equal(readTime(file.db, "main", "covered_from"), coveredFrom);
  },
);

t.test("key actions and a sync at the same time share one login", async (t) => {
  const { mirror } = await startMirror(t, { requests: 0, accessToken: true });
  const sync = mirror.sync();
  const [one, other] = await Promise.all([mirror.keyActions(null), mirror.keyActions(null)]);
  await sync;
  t.equal(one, other);
  t.equal(await mirror.keyActions(null), one);
});

t.test("the console is read every minute while tools are active, and every five otherwise", async (t) => {
  const active = { id: "record-1", started_at: 0 };
  const { mirror, clock } = await startMirror(t, { requests: 0, accessToken: true, last: () => active });
  await mirror.sync();
  active.started_at = clock.now() - 2 * MINUTE;
  t.match(await mirror.status(), { interval: MINUTE });
  clock.pass(4 * MINUTE);
  const idle = await mirror.status();
  t.match(idle, { interval: 5 * MINUTE });
  t.ok((idle.next_sync ?? 0) >= (idle.last_sync ?? 0) + 5 * MINUTE);
});

longTest(t, "without a login, the interval is what the lookups of the keys allow", async (t) => {
  for (const [keys, interval] of [
    [1, 5 * MINUTE],
    [5, 8 * MINUTE],
    [12, 20 * MINUTE],
  ] as const) {
    const { mirror } = await startMirror(t, { requests: 0, accessToken: false, keys });
    await mirror.sync();
    t.match(await mirror.status(), { state: "ok", interval });
  }
});

const NEW_KEY = "sk-fedcba9876543210fedcba9876543210c3d4";
const USE = { model: "gpt-5.1", stream: true, input: 100, output: 7, dollars: 0.1 };
const KEYS = "SELECT key_ref, key FROM mirror.console_rows";

longTest(t, "a key that was listed before a tool had it is ours if a change of a key made it", async (t) => {
  for (const isOurs of [true, false]) {
    let isUnfinished = isOurs;
    const { mirror, double, clock, file } = await startMirror(t, {
      requests: 0,
      accessToken: true,
      isChanging: ({ gateway, name }) => isUnfinished && gateway === "main" && name === "codex-0abc123",
    });
    const made = double.addKey({ name: "codex-0abc123", key: NEW_KEY });
    await mirror.sync();
    // The tool gets it, uses it and loses it before the console is read again.
    isUnfinished = false;
    double.bill({ ...USE, key: NEW_KEY });
    double.deleteKey(made);
    clock.pass(2 * MINUTE);
    await mirror.sync();
    t.same(
      all(file.db, KEYS),
      isOurs ? [[`id:${made.id}`, "…c3d4"]] : [],
      isOurs ? "" : "another's is not read",
    );
  }
});

t.test("a key that is listed before it is deleted stays ours, also without a sync in between", async (t) => {
  const { mirror, double, clock, file } = await startMirror(t, { requests: 0, accessToken: true });
  await mirror.listKeys();
  double.bill({ ...USE, key: KEY });
  const [key] = double.keys;
  if (key !== undefined) double.deleteKey(key);
  clock.pass(2 * MINUTE);
  await mirror.sync();
  t.same(all(file.db, KEYS), [["id:11", "…a1b2"]]);
});

t.test("the rows of a key are read again once the journal knows a key that ends like it", async (t) => {
  const { mirror, double, clock, file } = await startMirror(t, { requests: 0, accessToken: true });
  double.addKey({ name: "another", key: NEW_KEY });
  double.bill({ ...USE, key: NEW_KEY });
  clock.pass(2 * MINUTE);
  await mirror.sync();
  t.same(all(file.db, KEYS), []);
  const held = ["…a1b2", "…c3d4"].map((key) => ({ gateway: "main", tool: "codex", key }));
  holdKeys(file.db, held, clock.now());
  await mirror.sync();
  t.same(all(file.db, KEYS), [["id:12", null]], "whose they are, an id of ours must show");
});

t.test("a key that is deleted here is gone at once, and the list is as old as before", async (t) => {
  const { mirror, double, clock } = await startMirror(t, { requests: 0, accessToken: true });
  const another = double.addKey({ name: "another", key: NEW_KEY });
  t.equal((await mirror.listKeys()).length, 2);
  const listedAt = clock.now();
  clock.pass(1000);
  const asked = double.asked.length;
  double.fault = "slow";
  const listing = mirror.listKeys();
  await until("the console was asked", () => double.asked.length > asked);
  mirror.noteDeleted(`id:${another.id}`);
  // A refusal since then is newer than what the console said of that key.
  t.match(mirror.toolFacts("codex"), { as_of: listedAt });
  double.fault = null;
  t.match(await listing, [{ name: "codex" }], "a list that was asked for before still has it");
  t.equal((await listing).length, 1);
});

t.test("another console under the gateway's name begins with nothing of the earlier one", async (t) => {
  const { mirror, clock, moveTo } = await startMirror(t, { requests: 0, accessToken: true });
  await mirror.sync();
  t.match(await mirror.status(), { state: "ok", last_sync: clock.now() });
  t.equal((await mirror.keys()).keys.length, 1);
  const other = await startNewApi(t, { now: clock.now });
  other.fault = "500";
  await moveTo(other);
  await mirror.sync();
  t.match(await mirror.status(), { state: "failing", last_sync: null });
  t.match(await mirror.keys(), { keys: [], problems: [{ gateway: "main" }] });
  t.equal(mirror.toolFacts("codex"), null);
  t.equal((await mirror.report()).account, null);
});

t.test("a list that the earlier console was asked for is read at the new one", async (t) => {
  const { mirror, double, clock, file, moveTo } = await startMirror(t, { requests: 0, accessToken: true });
  const other = await startNewApi(t, { now: clock.now });
  other.addKey({ name: "phone", key: NEW_KEY });
  other.addKey({ name: "codex there", key: KEY });
  double.fault = "slow";
  const listing = mirror.listKeys();
  await until("the earlier console was asked", () => double.asked.length > 0);
  await moveTo(other);
  double.fault = null;
  t.same((await listing).map(({ name }) => name).sort(), ["codex there", "phone"]);
  await mirror.sync();
  t.same(all(file.db, "SELECT ref, key FROM mirror.console_keys WHERE key IS NOT NULL ORDER BY ref"), [
    ["id:12", "…a1b2"],
    ["name:codex there", "…a1b2"],
  ]);
});

t.test("rows of an earlier console are forgotten as soon as the database can be used", async (t) => {
  let isReady = true;
  const { mirror, double, clock, file, moveTo } = await startMirror(t, {
    requests: 0,
    accessToken: true,
    isReady: () => isReady,
  });
  clock.pass(2 * MINUTE);
  double.bill({ ...USE, key: KEY });
  await mirror.sync();
  t.same(all(file.db, KEYS), [["id:11", "…a1b2"]]);
  const other = await startNewApi(t, { now: clock.now });
  isReady = false;
  await moveTo(other);
  await mirror.listKeys();
  await mirror.sync();
  t.match(await mirror.status(), { state: "failing" });
  isReady = true;
  await mirror.sync();
  t.match(await mirror.status(), { last_sync: clock.now() });
  t.match(readFact(file.db, "main", "console"), other.url);
  t.same(all(file.db, KEYS), []);
});
