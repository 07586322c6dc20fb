import { cpSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import t, { type Test } from "tap";
import { requestId } from "../../src/core/ids.ts";
import { parseEntry, textOfAmend, textOfRecord } from "../../src/shared/records.ts";
import { UsageIndex } from "../../src/usage/index/usage-index.ts";
import { dayOf } from "../../src/usage/journal/files.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { exportedRecord } from "../../src/usage/reports/records.ts";
import { LONG, longTest, repeats } from "../doubles/effort.ts";
import { record } from "../doubles/records.ts";
import { faultsIn, indexFaults } from "../doubles/usage-file.ts";
import { closing, DAY, linesIn, NOON, setClock, textIn } from "../usage/journal/journal-under-test.ts";
import { exchange, MemoryStore, RecordMachine, recordsOf, type TestStore } from "./record-machines.ts";
import { missingStore, StoreServer } from "./redis.ts";

function machinesOf(t: Test, store: TestStore, ...names: string[]): RecordMachine[] {
  return names.map((name) => new RecordMachine(t, name, store));
}

function one(t: Test, store: TestStore, name = "laptop"): RecordMachine {
  return new RecordMachine(t, name, store);
}

/** Id, machine and bill of every record, with the name of the machine itself for its own. */
async function viewOf(machine: RecordMachine): Promise<string[]> {
  const records = await machine.records();
  return records.map(
    ({ id, machine: name, billed_microdollars: billed }) => `${id} ${name ?? machine.name} ${billed}`,
  );
}

function siblingLines(machine: RecordMachine): number {
  return linesIn(machine.folder).filter(({ kind }) => kind === "sibling").length;
}

t.test("every machine has every record once, under the name of its machine", async (t) => {
  const store = new MemoryStore();
  const machines = machinesOf(t, store, "laptop", "desktop", "server");
  const [laptop, desktop] = machines as [RecordMachine, RecordMachine];
  for (const machine of machines) for (let n = 0; n < 3; n += 1) await machine.send();
  const refused = await laptop.send({}, { end: "refused", refusal: "rate-limited" });
  await exchange(machines);
  const late = await desktop.send({ model: "late" });
  desktop.bill(late, 77);
  const running = await desktop.begin({ model: "running" });
  await exchange(machines);
  await exchange(machines);
  const view = await viewOf(laptop);
  t.equal(view.length, 11, "what runs is not published");
  t.ok(view.includes(`${late} desktop 77`));
  t.ok(view.includes(`${refused} laptop null`));
  t.same(await viewOf(machines[2] as RecordMachine), view);
  t.same(
    (await viewOf(desktop)).filter((line) => !line.startsWith(running.id)),
    view,
  );
  for (const machine of machines) {
    t.same(indexFaults(machine.index), []);
    t.same(faultsIn(machine.folder), []);
  }
  const before = recordsOf(laptop.index);
  await laptop.usage.stop();
  const index = new UsageIndex({ file: laptop.index, folder: laptop.folder }, null);
  for (const _ of index.rebuild());
  index.close();
  t.same(recordsOf(laptop.index), before, "a rebuild finds the same");
});

t.test("exactly what an export prints is published", async (t) => {
  const store = new MemoryStore();
  const [laptop, desktop] = machinesOf(t, store, "laptop", "desktop") as [RecordMachine, RecordMachine];
  const program = { process: "/usr/bin/codex", user_agent: "codex_cli_rs/0.50.0" };
  await laptop.send({ held_tokens: 4242, ...program }, { counted_tokens: 4343 });
  await exchange([laptop, desktop]);
  const text = store.streams.get(laptop.id)?.[0]?.text ?? "";
  t.match(textIn(desktop.folder, dayOf(NOON)), /^{"kind":"sibling","id":/m, "the kind comes first");
  t.notMatch(text, /4242|4343|machine/);
  const [own] = await laptop.records();
  const [theirs] = await desktop.records();
  if (own === undefined || theirs === undefined) throw new Error("there is no record");
  t.match(own, program);
  t.same(exportedRecord(theirs), { ...exportedRecord(own), machine: "laptop" });
});

t.test("a crash before or after the store's answer publishes nothing twice and loses nothing", async (t) => {
  const store = new MemoryStore();
  const laptop = one(t, store);
  const ids: string[] = [];
  for (const fault of ["lost answer", "unreachable", "lost answer", "none"] as const) {
    ids.push(await laptop.send());
    laptop.fault = fault;
    await laptop.publisher.tick();
    t.equal(laptop.publisher.publishedUntil(), fault === "none" ? NOON : null);
    if (fault === "lost answer") await laptop.restart();
  }
  const published = (store.streams.get(laptop.id) ?? []).map(({ text }) => JSON.parse(text).id);
  t.same(published, ids);
  t.match(laptop.logLines.join(""), "records of this machine are not published");
});

longTest(
  t,
  "a store that lost its data gets everything again, and no machine has anything twice",
  async (t) => {
    const store = new MemoryStore();
    const machines = machinesOf(t, store, "laptop", "desktop");
    const [laptop, desktop] = machines as [RecordMachine, RecordMachine];
    const ids: string[] = [];
    for (let n = 0; n < 5; n += 1) ids.push(await laptop.send());
    for (const [at, id] of ids.entries()) laptop.bill(id, at);
    laptop.bill(ids[0] ?? "", 50);
    laptop.bill(ids[0] ?? "", 0);
    await exchange(machines);
    const lines = linesIn(desktop.folder).length;
    store.loseData();
    laptop.publisher.reset();
    t.equal(laptop.publisher.publishedUntil(), null, "until all is published again");
    await laptop.publisher.tick();
    t.equal(laptop.publisher.publishedUntil(), NOON);
    t.equal(store.streams.get(laptop.id)?.length, 12);
    const added = await laptop.send();
    await exchange(machines);
    t.equal((await desktop.records()).length, 6);
    t.equal(siblingLines(desktop), 6, "what is here already is not appended again");
    t.equal(
      linesIn(desktop.folder).length,
      lines + 1 + 2,
      "but two corrections of one record are, in their order",
    );
    t.equal((await desktop.records()).find(({ id }) => id === ids[0])?.billed_microdollars, 0);
    t.ok((await desktop.records()).some(({ id }) => id === added));
    store.loseData();
    await laptop.send();
    await laptop.publisher.tick();
    t.equal(laptop.publisher.publishedUntil(), null, "not announced, but the store has another position");
    await laptop.publisher.tick();
    t.equal(store.streams.get(laptop.id)?.length, 14);
    store.loseData();
    laptop.clock.time += 60_000;
    await laptop.publisher.tick();
    t.equal(store.streams.get(laptop.id)?.length, 14, "also if there is nothing new to publish");
    t.same(faultsIn(desktop.folder), []);
  },
);

longTest(t, "with a secret, a machine publishes again what it had published without one", async (t) => {
  const store = new MemoryStore();
  const machines = machinesOf(t, store, "laptop", "desktop");
  const [laptop, desktop] = machines as [RecordMachine, RecordMachine];
  const verified = async () => (await desktop.records()).map((record) => record.verified);
  for (const machine of machines) {
    machine.signerId = null;
    await machine.restart();
  }
  const id = await laptop.send();
  laptop.bill(id, 5);
  await exchange(machines);
  t.same(await verified(), [0], "as SQLite has it");
  for (const machine of machines) {
    machine.signerId = "a secret";
    await machine.restart();
  }
  await exchange(machines);
  t.equal(store.streams.get(laptop.id)?.length, 4);
  t.same(await verified(), [1]);
  t.equal((await desktop.records())[0]?.billed_microdollars, 5);
  desktop.positions = {};
  await desktop.restart();
  const lines = linesIn(desktop.folder).length;
  await exchange(machines);
  t.equal(linesIn(desktop.folder).length, lines, "what is verified is not appended again");

  desktop.signerId = null;
  await desktop.restart();
  store.add(laptop.id, textOfAmend(id, { ...record(1), billed_microdollars: 666 }));
  await exchange(machines);
  t.equal(
    (await desktop.records())[0]?.billed_microdollars,
    5,
    "an unsigned correction changes nothing signed",
  );
});

t.test(
  "a machine that is killed before it stores its position reads again, and has nothing twice",
  async (t) => {
    const store = new MemoryStore();
    const machines = machinesOf(t, store, "laptop", "desktop");
    const [laptop, desktop] = machines as [RecordMachine, RecordMachine];
    await laptop.send();
    await exchange(machines);
    await laptop.send();
    await laptop.publisher.tick();
    desktop.canSave = false;
    await desktop.subscribe(machines);
    t.equal(siblingLines(desktop), 2);
    t.equal(desktop.subscriber.seenUntil(laptop.id, true), NOON, "of the exchange before");
    await desktop.restart();
    await desktop.subscribe(machines);
    t.equal((await desktop.records()).length, 2);
    t.same(faultsIn(desktop.folder), []);
    t.same(indexFaults(desktop.index), []);
  },
);

longTest(t, "records that were lost with an older copy of the journal are read again", async (t) => {
  const store = new MemoryStore();
  const machines = machinesOf(t, store, "laptop", "desktop", "server");
  const [laptop, desktop, server] = machines as [RecordMachine, RecordMachine, RecordMachine];
  await laptop.send();
  const amended = await server.send();
  server.bill(amended, 5);
  await exchange(machines);
  await desktop.usage.stop();
  const copy = join(desktop.state, "copy");
  cpSync(desktop.folder, copy, { recursive: true });
  await desktop.restart();
  await laptop.send();
  await exchange(machines);
  t.equal((await desktop.records()).length, 3);
  for (const restored of [copy, null]) {
    await desktop.usage.stop();
    rmSync(desktop.folder, { recursive: true });
    if (restored !== null) cpSync(restored, desktop.folder, { recursive: true });
    await desktop.restart();
    await exchange(machines);
    t.equal((await desktop.records()).filter(({ machine }) => machine === "laptop").length, 2);
  }
  await desktop.restart();
  const lines = linesIn(desktop.folder).length;
  await exchange(machines);
  t.equal(linesIn(desktop.folder).length, lines, "and only then");
});

longTest(
  t,
  "a machine that was offline for days publishes them all, also from compressed files",
  async (t) => {
    const store = new MemoryStore();
    const clock = setClock(NOON - 40 * DAY);
    const laptop = new RecordMachine(t, "laptop", store, clock);
    const desktop = one(t, store, "desktop");
    const days: string[] = [];
    for (; clock.time <= NOON; clock.time += DAY) {
      await laptop.send({ model: dayOf(clock.time) });
      days.push(dayOf(clock.time));
    }
    clock.time = NOON;
    for (const name of readdirSync(laptop.folder).slice(0, -2)) {
      const path = join(laptop.folder, name);
      writeFileSync(`${path}.gz`, gzipSync(readFileSync(path)));
      rmSync(path);
    }
    await exchange([laptop, desktop]);
    t.same(
      (await desktop.records()).map(({ model }) => model),
      days.slice(-32),
      "as far back as the store keeps them",
    );
    t.equal(desktop.subscriber.seenUntil(laptop.id, true), NOON);
    const position = laptop.batches.length;
    await laptop.publisher.tick();
    await laptop.restart();
    await laptop.publisher.tick();
    t.equal(laptop.batches.length, position, "and only once");
    const newest = readdirSync(laptop.folder).at(-1) ?? "";
    const path = join(laptop.folder, newest);
    writeFileSync(`${path}.new`, readFileSync(path));
    renameSync(`${path}.new`, path);
    writeFileSync(path, readFileSync(path, "utf8").replaceAll("gpt-5.1-2026", "gpt-5.1-2027"));
    await laptop.restart();
    await exchange([laptop, desktop]);
    t.equal(laptop.batches.length, position + 1, "a file that was replaced is published again");
    t.equal((await desktop.records()).length, 32);
  },
);

longTest(t, "batches are small, with any records", async (t) => {
  const store = new MemoryStore();
  const laptop = one(t, store);
  const desktop = one(t, store, "desktop");
  for (let n = 0; n < 250; n += 1) await laptop.send({}, { end: "refused", refusal: "rate-limited" });
  const long = "\\".repeat(5000);
  for (let n = 0; n < 60; n += 1)
    await laptop.send({ model: long, endpoint: long, process: long, tool: long }, { cause: long });
  await exchange([laptop, desktop]);
  t.equal(laptop.batches.flat().length, 310);
  for (const batch of laptop.batches) {
    t.ok(batch.length <= 100);
    t.ok(Buffer.byteLength(batch.join("")) <= 256 * 1024);
  }
  await exchange([laptop, desktop]);
  t.equal((await desktop.records()).length, 310);
  t.notMatch(desktop.logLines.join(""), "was skipped", "what a machine publishes is always valid");
});

t.test("times follow the clock of the machine that reads them", async (t) => {
  const store = new MemoryStore();
  const minutes = 60_000;
  const laptop = new RecordMachine(t, "laptop", store, setClock(NOON + 7 * minutes));
  laptop.offset = -7 * minutes;
  const desktop = new RecordMachine(t, "desktop", store, setClock(NOON - 3 * minutes));
  desktop.offset = 3 * minutes;
  await laptop.send({}, { first_byte_at: laptop.clock.time + 10, ended_at: laptop.clock.time + 20 });
  await exchange([laptop, desktop]);
  const now = desktop.clock.time;
  t.match(await desktop.records(), [
    { started_at: now, first_byte_at: now + 10, ended_at: now + 20, machine: "laptop" },
  ]);
});

t.test("requests in flight and lines that wait for the disk hold back the time of publication", async (t) => {
  const store = new MemoryStore();
  const [laptop, desktop] = machinesOf(t, store, "laptop", "desktop") as [RecordMachine, RecordMachine];
  const { clock, publisher } = laptop;
  t.equal(publisher.publishedUntil(), null);
  await publisher.tick();
  t.equal(publisher.publishedUntil(), NOON, "nothing was sent");
  clock.time += 5000;
  const running = await laptop.begin();
  clock.time += 5000;
  await laptop.send();
  await exchange([laptop, desktop]);
  t.equal(publisher.publishedUntil(), NOON + 5000);
  t.equal(desktop.subscriber.seenUntil(laptop.id, true), NOON + 5000);
  laptop.usage.journal.close(running.id, closing({ ended_at: clock.time }));
  t.equal(publisher.publishedUntil(), NOON + 5000, "ended, but not published");
  await publisher.tick();
  t.equal(publisher.publishedUntil(), NOON + 10_000);

  const [, ...rest] = [...((await store.read(new Map([[laptop.id, null]]), 100)).get(laptop.id) ?? [])];
  const last = rest.at(-1)?.id ?? "";
  const published = {
    id: laptop.id,
    name: "laptop",
    isVerified: true,
    publishedUntil: NOON + 10_000,
    lastEntry: last,
  };
  desktop.fault = "unreachable";
  await desktop.subscriber.tick([published]);
  t.equal(desktop.subscriber.seenUntil(laptop.id, true), NOON + 5000, "not before its entries are here");
  desktop.fault = "none";
  await desktop.subscriber.tick([published]);
  t.equal(desktop.subscriber.seenUntil(laptop.id, true), NOON + 10_000);
  await desktop.subscriber.tick([{ ...published, publishedUntil: NOON + 20_000, lastEntry: "9999999-0" }]);
  await desktop.subscriber.tick([{ ...published, publishedUntil: NOON + 20_000, lastEntry: "x" }]);
  await desktop.subscriber.tick([{ ...published, publishedUntil: null }]);
  t.equal(desktop.subscriber.seenUntil(laptop.id, true), NOON + 10_000);

  const ending = await laptop.begin();
  clock.time += 1000;
  t.equal(await publisher.finish(), false, "a request is in flight");
  laptop.usage.journal.close(ending.id, closing({ ended_at: clock.time }));
  t.ok(await publisher.finish());
  t.match(JSON.parse(store.streams.get(laptop.id)?.at(-1)?.text ?? ""), { id: ending.id });
  laptop.fault = "unreachable";
  await laptop.send();
  t.equal(await publisher.finish(), false, "the store cannot be reached");
  laptop.fault = "none";
  t.equal(await publisher.finish(), true);
  publisher.reset();
  t.equal(publisher.publishedUntil(), null, "a new connection may be to another store");
});

t.test("a journal that cannot be written holds everything back", async (t) => {
  const store = new MemoryStore();
  const [laptop, desktop] = machinesOf(t, store, "laptop", "desktop") as [RecordMachine, RecordMachine];
  await laptop.send();
  await laptop.publisher.tick();
  await desktop.usage.stop();
  await desktop.subscribe([laptop]);
  t.same(desktop.positions, {});
  t.equal(desktop.subscriber.seenUntil(laptop.id, true), null);
  await desktop.restart();
  await desktop.subscribe([laptop]);
  t.equal((await desktop.records()).length, 1);
});

longTest(t, "a machine that gets another name keeps its records, and still corrects them", async (t) => {
  const store = new MemoryStore();
  const [laptop, desktop] = machinesOf(t, store, "laptop", "desktop") as [RecordMachine, RecordMachine];
  const id = await laptop.send();
  await exchange([laptop, desktop]);
  laptop.name = "old-laptop";
  laptop.bill(id, 5);
  const next = await laptop.send();
  await exchange([laptop, desktop]);
  t.same(await viewOf(desktop), [`${id} laptop 5`, `${next} old-laptop null`].sort());
});

const CANARY = "sk-canary-0123456789abcdef";

/** A valid entry, but for what is given. */
function entry(given: Record<string, unknown> = {}): string {
  const valid = JSON.parse(textOfRecord({ ...record(1, { started_at: NOON }), id: requestId(NOON) }, 0));
  return JSON.stringify({ ...valid, model: CANARY, ...given });
}

const HOSTILE: Readonly<Record<string, string>> = {
  "no JSON": CANARY,
  "a text": JSON.stringify(CANARY),
  null: "null",
  "a list": `[${entry()}]`,
  empty: "",
  "too long": entry({ model: CANARY.repeat(5000) }),
  "deeply nested": `${"[".repeat(30_000)}${"]".repeat(30_000)}`,
  "no id": entry({ id: null }),
  "an id that is no ULID": entry({ id: CANARY }),
  "an id from another time": entry({ id: requestId(NOON - 30 * DAY) }),
  "an id after every other": entry({ id: "7ZZZZZZZZZZZZZZZZZZZZZZZZZ" }),
  "a wrong start": entry({ started_at: CANARY }),
  "a start long ago": entry({ started_at: 0 }),
  "a start in the future": entry({ started_at: NOON + 2 * DAY, id: requestId(NOON + 2 * DAY) }),
  "an end long ago": entry({ ended_at: -5 }),
  "a first byte in the future": entry({ first_byte_at: 1e300 }),
  "no end": entry({ end: null }),
  "an unknown end": entry({ end: CANARY }),
  "an unknown protocol": entry({ protocol: CANARY }),
  "unknown tokens": entry({ tokens_from: CANARY }),
  "a multiplier below 0": entry({ multiplier: -1 }),
  "a multiplier without end": entry({ multiplier: 1e308 }),
  "a long text": entry({ endpoint: CANARY.repeat(40) }),
  "an escape sequence": entry({ model: `\u001b[2J${CANARY}` }),
  "a line break": entry({ tool: `a\n{"kind":"close"}${CANARY}` }),
  "half a character": entry({ key: `\ud800${CANARY}` }),
  "a control character in an id": entry({ gateway_ids: { a: `\u0007${CANARY}` } }),
  "a long name of an id": entry({ gateway_ids: { [CANARY.repeat(40)]: "a" } }),
  "too many ids": entry({
    gateway_ids: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`i${n}`, CANARY])),
  }),
  "a correction with unknown tokens": JSON.stringify({ id: requestId(NOON), tokens_from: CANARY }),
  "a correction of nothing": JSON.stringify({ tokens_from: "console", model: CANARY }),
};

t.test("what is not valid is skipped, and nothing of it is kept anywhere", async (t) => {
  const store = new MemoryStore();
  const desktop = one(t, store, "desktop");
  const evil = { id: "id-of-evil", name: "evil", isVerified: true, publishedUntil: null, lastEntry: null };
  for (const [what, text] of Object.entries(HOSTILE)) {
    store.add(evil.id, text);
    t.equal(parseEntry(text, NOON, 0).kind, "bad", what);
  }
  store.add(
    evil.id,
    entry({ model: "good", unknown_field: CANARY, machine: CANARY, held_tokens: 7, kind: CANARY }),
  );
  await desktop.subscriber.tick([evil]);
  t.match(await desktop.records(), [{ model: "good", machine: "evil", held_tokens: null }]);
  t.equal(desktop.logLines.filter((line) => line.includes("was skipped")).length, 1, "logged once");
  const files = linesIn(desktop.folder).map((line) => JSON.stringify(line));
  t.notMatch([...files, ...desktop.logLines].join(""), CANARY);
  for (const name of readdirSync(desktop.folder))
    t.notMatch(readFileSync(join(desktop.folder, name), "utf8"), CANARY);
});

t.test("a valid entry changes only what its machine may change", async (t) => {
  const store = new MemoryStore();
  const [laptop, desktop] = machinesOf(t, store, "laptop", "desktop") as [RecordMachine, RecordMachine];
  const mine = await desktop.send();
  const theirs = await laptop.send();
  await exchange([laptop, desktop]);
  const before = await desktop.records();
  const evil = { id: "id-of-evil", name: "desktop", isVerified: true, publishedUntil: null, lastEntry: null };
  for (const id of [mine, theirs]) {
    store.add(evil.id, entry({ id, model: "evil" }));
    store.add(evil.id, textOfAmend(id, { ...record(1), billed_microdollars: 666 }));
  }
  for (const bad of [
    { ...evil, name: "a\nb" },
    { ...evil, name: "" },
    { ...evil, id: "x".repeat(65) },
  ])
    await desktop.subscriber.tick([bad]);
  t.same(desktop.positions, { [laptop.id]: "1000001-0" }, "a machine without a proper name is not read");
  await desktop.subscriber.tick([evil]);
  t.same(await desktop.records(), before);
  t.same(indexFaults(desktop.index), []);
});

t.test("a wrong store cannot keep a machine busy, or make it believe a wrong position", async (t) => {
  const store = new MemoryStore();
  const desktop = one(t, store, "desktop");
  const laptop = {
    id: "id-of-laptop",
    name: "laptop",
    isVerified: true,
    publishedUntil: null,
    lastEntry: null,
  };
  const texts = Array.from({ length: 100 }, () => entry());
  let reads = 0;
  store.read = async () => {
    reads += 1;
    return new Map([[laptop.id, texts.map((text, at) => ({ id: `${at + 1}-0`, text }))]]);
  };
  await desktop.subscriber.tick([laptop]);
  await desktop.subscriber.tick([laptop]);
  t.equal(reads, 3, "the same entries again are the end");
  t.equal(siblingLines(desktop), 100);
  for (const id of ["", "x", "1", "1-", "-1-0", "99999999999999999999-0"]) {
    store.read = async () => new Map([[laptop.id, [{ id, text: entry() }]]]);
    await desktop.subscriber.tick([laptop]);
  }
  t.equal(siblingLines(desktop), 100);

  await desktop.send();
  for (const position of [
    "x",
    "[]",
    "null",
    '{"day":"2026-11-16"}',
    '{"day":"2026-11-16","offset":1e9,"passed":false,"mark":"too short"}',
  ]) {
    await desktop.restart();
    const sent: (readonly string[])[] = [];
    store.publish = async (_machine, entries, from, to) => {
      sent.push(entries);
      return from === position ? to : position;
    };
    await desktop.publisher.tick();
    t.equal(sent.flat().length, 1, `${position}: everything is published again`);
  }
  store.publish = async () => "never the same";
  await desktop.restart();
  await desktop.publisher.tick();
  t.equal(desktop.publisher.publishedUntil(), null);
});

t.test("what a machine publishes is always what the others accept", async () => {
  const anyText = fc.option(fc.string({ unit: "binary", maxLength: 1500 }));
  const given = fc.record({
    tool: anyText,
    model: anyText,
    endpoint: fc.string({ unit: "binary" }),
    cause: anyText,
    process: anyText,
  });
  const ids = fc.dictionary(
    fc.string({ unit: "binary", maxLength: 400 }),
    fc.string({ unit: "binary", maxLength: 400 }),
  );
  fc.assert(
    fc.property(given, ids, fc.integer({ min: -DAY, max: DAY }), (texts, gateway_ids, offset) => {
      const whole = record(1, { ...texts, gateway_ids, started_at: NOON } as Partial<UsageRecord>);
      const parsed = parseEntry(textOfRecord(whole, offset), NOON, offset);
      return parsed.kind === "record" && parsed.record.started_at === NOON;
    }),
    { numRuns: repeats("KEYBEARER_PROPERTY_RUNS", 20, 500) },
  );
});

type Step = readonly [
  "send" | "bill" | "publish" | "lose answer" | "read" | "crash" | "kill" | "lose data",
  number,
];

t.test("after any faults, every machine has every record once", async (t) => {
  const step: fc.Arbitrary<Step> = fc.tuple(
    fc.constantFrom(
      "send",
      "send",
      "bill",
      "publish",
      "lose answer",
      "read",
      "read",
      "crash",
      "kill",
      "lose data",
    ),
    fc.nat(2),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
      const store = new MemoryStore();
      const machines = machinesOf(t, store, "laptop", "desktop", "server");
      const sent = new Map<RecordMachine, string[]>(machines.map((machine) => [machine, []]));
      let bills = 0;
      for (const [what, number] of steps) {
        const machine = machines[number] as RecordMachine;
        const ids = sent.get(machine) ?? [];
        if (what === "send") ids.push(await machine.send());
        else if (what === "bill" && ids.length > 0) machine.bill(ids.at(-1) ?? "", ++bills);
        else if (what === "publish") await machine.publisher.tick();
        else if (what === "read") await machine.subscribe(machines);
        else if (what === "crash") await machine.restart();
        else if (what === "lose answer") {
          machine.fault = "lost answer";
          await machine.publisher.tick();
          machine.fault = "none";
        } else if (what === "kill") {
          machine.canSave = false;
          await machine.subscribe(machines);
          await machine.restart();
        } else if (what === "lose data") {
          store.loseData();
          for (const each of machines) each.publisher.reset();
        }
      }
      await exchange(machines);
      const views = (await Promise.all(machines.map(viewOf))).map((view) => JSON.stringify(view));
      const total = [...sent.values()].flat().length;
      const faults = machines.flatMap((machine) => indexFaults(machine.index));
      await Promise.all(machines.map((machine) => machine.usage.stop()));
      return new Set(views).size === 1 && JSON.parse(views[0] ?? "").length === total && faults.length === 0;
    }),
    { numRuns: repeats("KEYBEARER_PROPERTY_RUNS", 1, 30) },
  );
});

const PUBLISH = `if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then
  return redis.call('HGET', KEYS[1], ARGV[1]) or ''
end
for i = 4, #ARGV do redis.call('XADD', KEYS[2], '*', 'record', ARGV[i]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return ARGV[3]`;

/** The same in a real store. */
function redisStore(server: StoreServer): TestStore {
  const stream = (machine: string) => `keybearer:records:${machine}`;
  return {
    generation: "1",
    async publish(machine, entries, from, to) {
      const keys = ["keybearer:positions", stream(machine)];
      const answer = await server.admin(["EVAL", PUBLISH, "2", ...keys, machine, from ?? "", to, ...entries]);
      return answer === "" ? null : String(answer);
    },
    async read(after, max) {
      const found = new Map<string, { id: string; text: string }[]>();
      for (const [machine, id] of after) {
        const from = id === null ? "-" : `(${id}`;
        const rows = await server.admin(["XRANGE", stream(machine), from, "+", "COUNT", String(max)]);
        const entries = (rows as [string, string[]][]).map(([entryId, [, text = ""]]) => ({
          id: entryId,
          text,
        }));
        found.set(machine, entries);
      }
      return found;
    },
    async lastEntry(machine) {
      const rows = await server.admin(["XREVRANGE", stream(machine), "+", "-", "COUNT", "1"]);
      return (rows as [string][])[0]?.[0] ?? null;
    },
  };
}

if (LONG)
  t.test(
    "every machine has every record after a real store was killed and started again",
    { skip: missingStore() ?? false },
    async (t) => {
      const server = await StoreServer.start(t);
      const machines = machinesOf(t, redisStore(server), "laptop", "desktop", "server");
      for (const machine of machines) for (let n = 0; n < 40; n += 1) await machine.send();
      await exchange(machines);
      await server.kill();
      for (const machine of machines) {
        await machine.send();
        await machine.publisher.tick();
        t.equal(machine.publisher.publishedUntil(), null, "the store cannot be reached");
      }
      await server.restart();
      await exchange(machines);
      const views = await Promise.all(machines.map(viewOf));
      t.equal(views[0]?.length, 123);
      t.same(views[1], views[0]);
      t.same(views[2], views[0]);
    },
  );
