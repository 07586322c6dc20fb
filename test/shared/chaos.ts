import { copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Test } from "tap";
import { openIndexForReading } from "../../src/usage/index/database.ts";
import { COLUMN_NAMES, EXPORTED, recordOfRow, type UsageRecord } from "../../src/usage/record.ts";
import { canaryKey } from "../doubles/daemon-under-test.ts";
import { repeats } from "../doubles/effort.ts";
import { random } from "../doubles/random.ts";
import { filesBelow, scan, textsOf } from "../doubles/secret-scan.ts";
import { until } from "../doubles/until.ts";
import { indexFaults, recordsIn } from "../doubles/usage-file.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";
import { GatewayDouble, type Play } from "./gateway.ts";
import { Machine, type Outcome } from "./machine.ts";
import { StoreServer } from "./redis.ts";

const MACHINES = ["laptop", "desktop", "server", "attic", "train"];
const STEPS = repeats("KEYBEARER_SHARED_STEPS", 8, 30);
const MAX_PAUSE_MS = 150;
const HOUR = 3_600_000;
const MINUTE = 60_000;

/** What each tool may use on all machines together. Small enough to be used up while things fail. */
interface Limits {
  readonly hourly: number;
  readonly minutely: number;
  /** Tokens in an hour, and micro-dollars in a day: a penny token costs one. */
  readonly metered: number;
  readonly streams: number;
  /** Micro-dollars. */
  readonly paid: number;
}

function limitsFrom(below: (below: number) => number): Limits {
  return {
    hourly: 8 + below(33),
    minutely: 4 + below(9),
    metered: 200 + below(700),
    streams: 3,
    paid: 200 + below(500),
  };
}

type ToolName = keyof Limits;
const TOOLS: readonly ToolName[] = ["hourly", "minutely", "metered", "streams", "paid"];

function settingsOf(limits: Limits): Readonly<Record<ToolName, string>> {
  const { hourly, minutely, metered, streams, paid } = limits;
  return {
    hourly: `limits: { requests: ${hourly}/hour }`,
    minutely: `limits: { requests: [${minutely}/minute, 1000/hour] }`,
    metered: `limits: { tokens: ${metered}/hour, spend: $${metered / 1e6}/day }`,
    streams: `limits: { concurrent: ${streams} }`,
    paid: `quota: $${paid / 1e6}`,
  };
}

/** How a request is refused when its tool's limit is used up. */
const REFUSALS: Readonly<Record<ToolName, readonly string[]>> = {
  hourly: ["rate-limited"],
  minutely: ["rate-limited"],
  metered: ["tokens-limited", "spend-limited"],
  streams: ["too-many-at-once"],
  paid: ["quota-exhausted"],
};

/** What a request may use at most. Every request reserves the same. */
const MAX_OUTPUT = 40;
const BODY = { model: "penny", max_tokens: MAX_OUTPUT, messages: [{ role: "user", content: "hello" }] };

const FAULTS = ["killed", "frozen", "slow", "cut", "black-hole", "stall"] as const;

interface Fault {
  /** The step in which it ends. */
  readonly until: number;
  readonly end: () => void | Promise<void>;
}

/** Five machines, one store and one gateway, with faults from one seed. */
export class Chaos {
  readonly #t: Test;
  readonly #below: (below: number) => number;
  readonly #limits: Limits;
  readonly #store: StoreServer;
  readonly #gateway: GatewayDouble;
  readonly #machines: readonly Machine[];
  readonly #keys: Readonly<Record<string, string>>;
  readonly #mayKillStore: boolean;
  readonly #isSilent: boolean;
  readonly #monitored: () => string;
  /** What is harmed now. */
  readonly #faults = new Map<Machine | StoreServer, Fault>();
  readonly #pending: Promise<unknown>[] = [];
  /** What happened, for a seed that fails. */
  readonly events: string[] = [];

  private constructor(t: Test, world: World) {
    this.#t = t;
    this.#below = world.below;
    this.#limits = world.limits;
    this.#store = world.store;
    this.#gateway = world.gateway;
    this.#machines = world.machines;
    this.#keys = world.keys;
    this.#mayKillStore = world.mayKillStore;
    this.#isSilent = world.isSilent;
    this.#monitored = world.monitored;
  }

  static async start(t: Test, seed: number): Promise<Chaos> {
    const below = random(seed);
    const isPersistent = below(3) > 0;
    // A killed store takes the monitor with it.
    const isMonitored = seed % 5 === 1;
    const store = await StoreServer.start(t, { isPersistent });
    const limits = limitsFrom(below);
    const keys = Object.fromEntries(TOOLS.map((tool) => [tool, canaryKey()]));
    const gateway = await GatewayDouble.start(t, keys);
    t.teardown(() => gateway.release());
    const tools = Object.fromEntries(
      Object.entries(settingsOf(limits)).map(([tool, settings]) => [tool, `key: ${keys[tool]}, ${settings}`]),
    );
    const machines = await Promise.all(
      MACHINES.map((name) =>
        Machine.create(t, {
          name,
          store,
          skewMinutes: below(41) - 20,
          gateway: [`base_url: ${gateway.baseUrl}`],
          tools,
          shared: [`timezone: ${zoneAtNoon()}`],
        }),
      ),
    );
    const monitored = isMonitored ? await store.monitor() : () => "";
    await Promise.all(machines.map((machine) => machine.start()));
    const isSilent = below(2) === 0;
    const mayKillStore = !isMonitored;
    return new Chaos(t, { below, limits, store, gateway, machines, keys, mayKillStore, isSilent, monitored });
  }

  /** Load and faults, as the seed says, and then everything works again. */
  async run(): Promise<void> {
    await this.#connected();
    for (let step = 0; step < STEPS; step += 1) {
      for (let left = 2 + this.#below(9); left > 0; left -= 1) this.#sendOne();
      await this.#endFaults(step);
      if (this.#below(2) === 0) await this.#beginFault(step);
      await wait(this.#below(MAX_PAUSE_MS));
    }
    this.#note("everything heals");
    await this.#endFaults(Number.POSITIVE_INFINITY);
    await Promise.all(this.#pending.splice(0));
    await this.#connected();
    this.#note("every machine is connected");
  }

  /** Every machine can be granted something. */
  async #connected(): Promise<void> {
    await until("every machine is connected", async () => {
      const states = await Promise.all(this.#machines.map((machine) => machine.status()));
      return states.every(({ shared }) => shared?.state === "connected" && shared.recovering.length === 0);
    });
  }

  #sendOne(): void {
    const tool = pick(TOOLS, this.#below);
    this.#pending.push(this.#send(pick(this.#machines, this.#below), tool));
  }

  #send(machine: Machine, tool: ToolName, play = this.#playOf(tool)): Promise<Outcome> {
    const output = String(this.#below(MAX_OUTPUT));
    return machine.send(
      tool,
      { ...BODY, stream: play === "stream" || play === "hold" },
      { "x-play": play, "x-output": output },
    );
  }

  #playOf(tool: ToolName): Play {
    if (tool === "streams") return "stream";
    return tool === "metered" && this.#isSilent ? "silent" : "report";
  }

  /** Harms the store or a machine that is well, for a few steps. */
  async #beginFault(step: number): Promise<void> {
    if (this.#mayKillStore && this.#below(10) === 0) {
      await this.#killStore(step);
      return;
    }
    const machine = pick(this.#machines, this.#below);
    if (this.#faults.has(machine)) return;
    const kind = pick(FAULTS, this.#below);
    this.#note(`${machine.name}: ${kind}`);
    const until = step + 1 + this.#below(10);
    switch (kind) {
      case "killed":
        this.#faults.set(machine, { until, end: () => this.#revive(machine) });
        return machine.kill();
      case "frozen":
        this.#faults.set(machine, { until, end: () => machine.thaw() });
        return machine.freeze();
      case "slow":
        this.#faults.set(machine, { until, end: () => machine.partition.set("pass") });
        return machine.partition.set("pass", 1 + this.#below(100));
      default:
        this.#faults.set(machine, { until, end: () => machine.partition.set("pass") });
        return machine.partition.set(kind);
    }
  }

  async #killStore(step: number): Promise<void> {
    if (this.#faults.has(this.#store)) return;
    this.#note("the store is killed");
    this.#faults.set(this.#store, { until: step + 1 + this.#below(3), end: () => this.#store.restart() });
    await this.#store.kill();
  }

  /** Ends the faults that are due. */
  async #endFaults(step: number): Promise<void> {
    for (const [harmed, { until, end }] of this.#faults) {
      if (until > step) continue;
      this.#faults.delete(harmed);
      this.#note(`${harmed instanceof Machine ? harmed.name : "the store"} is well again`);
      await end();
    }
  }

  /** Does not wait for it: the others go on. Meanwhile nothing else happens to it. */
  #revive(machine: Machine): void {
    this.#faults.set(machine, { until: Number.POSITIVE_INFINITY, end: () => {} });
    const started = machine.start().then(() => {
      this.#note(`${machine.name} serves again`);
      this.#faults.delete(machine);
    });
    this.#pending.push(started);
  }

  #note(what: string): void {
    this.events.push(`${new Date().toISOString().slice(11, 23)} ${what}`);
  }

  /** Every record of a tool that its limits admitted, from the machines' own journals. */
  #admitted(tool: ToolName): UsageRecord[] {
    const records = this.#machines.flatMap((machine) => ownRecords(machine));
    return records.filter(
      (record) => record.tool === tool && record.end !== "refused" && record.counts !== false,
    );
  }

  /** No limit was exceeded, in any window. */
  checkLimits(when: string): void {
    const t = this.#t;
    const limits = this.#limits;
    for (const tool of ["hourly", "minutely"] as const) {
      const size = tool === "hourly" ? HOUR : MINUTE;
      const admitted = this.#admitted(tool);
      for (const [window, count] of windowSums(admitted, size, () => 1))
        t.ok(count <= limits[tool], `${tool}: ${count} of ${limits[tool]} in window ${window}, ${when}`);
      const arrived = this.#gateway.arrivals.filter((arrival) => arrival.tool === tool).length;
      t.ok(
        arrived <= admitted.length,
        `${tool}: ${arrived} arrivals have ${admitted.length} records, ${when}`,
      );
    }
    const metered = this.#admitted("metered");
    for (const [window, tokens] of windowSums(metered, HOUR, tokensOf))
      t.ok(tokens <= limits.metered, `metered: ${tokens} tokens of ${limits.metered} in ${window}, ${when}`);
    const spent = sum(metered.map(moneyOf));
    t.ok(spent <= limits.metered, `metered: ${spent} micro-dollars of ${limits.metered} today, ${when}`);
    const paid = sum(this.#admitted("paid").map(moneyOf));
    t.ok(paid <= limits.paid, `paid: ${paid} micro-dollars of ${limits.paid}, ${when}`);
    const most = this.#gateway.most("streams");
    t.ok(most <= limits.streams, `streams: ${most} of ${limits.streams} at once, ${when}`);
    t.notOk(
      this.#gateway.arrivals.some(({ tool }) => tool === "unknown key"),
      `only known keys, ${when}`,
    );
  }

  /** The rest of every budget can be used from one machine: nothing is left behind. */
  async useUp(): Promise<void> {
    const machine = pick(this.#machines, this.#below);
    this.#note(`${machine.name} uses up the rest`);
    // The others return what they do not use.
    for (const other of this.#machines) if (other !== machine) other.idle();
    const { hourly, metered, paid } = this.#limits;
    await this.#useUp(machine, "hourly", () => newestHour(this.#admitted("hourly")).length >= hourly);
    await this.#useUp(machine, "metered", () => {
      const admitted = this.#admitted("metered");
      const tokens = sum(newestHour(admitted).map(tokensOf));
      const money = sum(admitted.map(moneyOf));
      return metered - Math.max(tokens, money) < reservationOf(admitted);
    });
    await this.#useUp(machine, "paid", () => {
      const admitted = this.#admitted("paid");
      return paid - sum(admitted.map(moneyOf)) < reservationOf(admitted);
    });
    await this.#fillStreams(machine);
  }

  async #useUp(machine: Machine, tool: ToolName, isUsedUp: () => boolean): Promise<void> {
    let last: Outcome | null = null;
    await until(`${machine.name} can use the rest of ${tool}`, async () => {
      last = await this.#send(machine, tool);
      return REFUSALS[tool].includes(String(last.refusal)) && isUsedUp();
    }).catch((error) => {
      this.#t.fail(`${error}; the last answer: ${last?.status} ${last?.refusal} ${last?.text}`);
    });
    const { refusal, text } = await this.#send(machine, tool);
    this.#t.ok(REFUSALS[tool].includes(String(refusal)), `${tool}: one more is refused: ${refusal} ${text}`);
  }

  async #fillStreams(machine: Machine): Promise<void> {
    const streams: Promise<Outcome>[] = [];
    await until(`${machine.name} can use every stream`, async () => {
      if (this.#gateway.inFlight("streams") === this.#limits.streams) return true;
      const before = this.#gateway.arrivals.length;
      const stream = this.#send(machine, "streams", "hold");
      let isAnswered = false;
      const answered = stream.then(() => {
        isAnswered = true;
      });
      await until("it arrives or is refused", () => isAnswered || this.#gateway.arrivals.length > before);
      if (isAnswered) await answered;
      else streams.push(stream);
      return false;
    });
    const { refusal } = await this.#send(machine, "streams", "hold");
    this.#t.equal(refusal, "too-many-at-once", "streams: one more is refused");
    this.#gateway.release();
    for (const { status } of await Promise.all(streams)) this.#t.equal(status, 200);
  }

  /** Every record of every machine is on every machine, once, under the machine's name. */
  async checkRecords(): Promise<void> {
    const t = this.#t;
    const expected = new Map<string, string>();
    for (const machine of this.#machines)
      for (const record of ownRecords(machine)) expected.set(record.id, comparable(record, machine.name));
    const started = new Map(
      this.#machines.flatMap((machine) =>
        ownRecords(machine).map((record) => [record.id, record.started_at - machine.skew] as const),
      ),
    );
    for (const machine of this.#machines) {
      await until(`${machine.name} has every record`, async () => {
        await machine.control("POST", "/index", {});
        return indexed(machine).filter(({ end }) => end !== null).length >= expected.size;
      }).catch((error) => t.fail(String(error)));
      const records = indexed(machine);
      const found = new Map(
        records.map((record) => [record.id, comparable(record, record.machine ?? machine.name)]),
      );
      t.equal(records.length, found.size, `${machine.name} has no record twice`);
      const missing = [...expected.keys()].filter((id) => !found.has(id));
      const unexpected = [...found.keys()].filter((id) => !expected.has(id));
      t.strictSame(
        { missing, unexpected },
        { missing: [], unexpected: [] },
        `${machine.name} has every record`,
      );
      const different = [...expected].filter(([id, text]) => found.has(id) && found.get(id) !== text);
      t.strictSame(
        different.map(([id, text]) => ({ expected: text, found: found.get(id) })),
        [],
        `${machine.name} has them as they are`,
      );
      // The clocks differ by whole minutes.
      const mistimed = records.filter(
        ({ id, started_at }) => Math.abs(started_at - machine.skew - (started.get(id) ?? 0)) > MINUTE / 2,
      );
      t.strictSame(mistimed, [], `${machine.name} has their times by its own clock`);
      const ownFromOthers = records.filter(({ machine: name }) => name === machine.name);
      t.strictSame(ownFromOthers, [], `${machine.name} has no record of itself from another`);
      t.strictSame(indexFaults(machine.paths.index), [], `${machine.name} has the right sums`);
    }
  }

  /** No secret is anywhere but in config.yaml. */
  async checkSecrets(): Promise<void> {
    const secrets: Record<string, string> = { ...this.#keys, "store password": this.#store.password };
    const texts: Record<string, string> = { store: await this.#store.dump(), monitor: this.#monitored() };
    for (const machine of this.#machines) {
      for (const [tool, token] of Object.entries(machine.tokens))
        secrets[`token of ${tool} on ${machine.name}`] = token;
      texts[`log of ${machine.name}`] = machine.log();
      const files = filesBelow(machine.home).filter((file) => file !== machine.paths.config);
      Object.assign(texts, textsOf(files));
    }
    this.#t.strictSame(scan(texts, secrets), [], "no secret is in a file, a log or the store");
  }

  /** For a seed that failed: what happened, the logs and the folders of the machines. */
  save(folder: string): void {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "events.txt"), `${this.events.join("\n")}\n`);
    for (const machine of this.#machines) {
      writeFileSync(join(folder, `${machine.name}.log`), machine.log());
      for (const file of filesBelow(machine.paths.usage))
        copyFileSync(file, join(folder, `${machine.name}-${basename(file)}`));
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.#machines.map((machine) => machine.stop()));
    for (const machine of this.#machines)
      this.#t.notMatch(machine.log(), /"level":"fatal"|a bug in keybearer/, `${machine.name} has no bug`);
  }
}

interface World {
  readonly below: (below: number) => number;
  readonly limits: Limits;
  readonly store: StoreServer;
  readonly gateway: GatewayDouble;
  readonly machines: readonly Machine[];
  readonly keys: Readonly<Record<string, string>>;
  readonly mayKillStore: boolean;
  /** The gateway reports no usage for metered requests, so that what was reserved counts. */
  readonly isSilent: boolean;
  readonly monitored: () => string;
}

function pick<T>(from: readonly T[], below: (below: number) => number): T {
  return from[below(from.length)] as T;
}

/** Without the refusals that share a record. Those stay on their machine. */
function ownRecords(machine: Machine): UsageRecord[] {
  return recordsIn(machine.paths.usage).filter(
    (record) => record.machine === null && record.last_id === null,
  );
}

/** Without them, too. */
function indexed(machine: Machine): UsageRecord[] {
  const { db, close } = openIndexForReading(machine.paths.index);
  try {
    const rows = db
      .prepare(`SELECT ${COLUMN_NAMES} FROM usage.records WHERE last_id IS NULL ORDER BY id`)
      .raw()
      .all();
    return rows.map(recordOfRow);
  } finally {
    close();
  }
}

/** By another clock on every machine. */
const TIMES: readonly string[] = ["started_at", "sent_at", "first_byte_at", "ended_at"];

/** What is the same on every machine. */
function comparable(record: UsageRecord, machine: string): string {
  const fields = EXPORTED.filter((name) => name !== "machine" && !TIMES.includes(name));
  return JSON.stringify([machine, ...fields.map((name) => [name, record[name]])]);
}

function tokensOf(record: UsageRecord): number {
  return record.counted_tokens ?? record.held_tokens ?? 0;
}

function moneyOf(record: UsageRecord): number {
  return record.counted_microdollars ?? record.held_microdollars ?? 0;
}

/** What every request of the tool reserves: a penny token costs a micro-dollar, so it is the same for both. */
function reservationOf(records: readonly UsageRecord[]): number {
  return Math.max(0, ...records.map(({ held_microdollars }) => held_microdollars ?? 0));
}

function windowOf(record: UsageRecord, size: number): number {
  return Math.floor((record.admitted_at ?? 0) / size);
}

/** The records of the newest hour that has any. */
function newestHour(records: readonly UsageRecord[]): UsageRecord[] {
  const newest = Math.max(...records.map((record) => windowOf(record, HOUR)));
  return records.filter((record) => windowOf(record, HOUR) === newest);
}

/** The sum of each window. */
function windowSums(
  records: readonly UsageRecord[],
  size: number,
  amountOf: (record: UsageRecord) => number,
): Map<number, number> {
  const sums = new Map<number, number>();
  for (const record of records) {
    const window = windowOf(record, size);
    sums.set(window, (sums.get(window) ?? 0) + amountOf(record));
  }
  return sums;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
