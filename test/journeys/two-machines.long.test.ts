import { randomBytes } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import t, { type Test } from "tap";
import { stringify } from "yaml";
import type { Status } from "../../src/control/status.ts";
import type { Clock } from "../../src/core/clock.ts";
import type { MirrorReport } from "../../src/mirror/report/shape.ts";
import { type DaemonUnderTest, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { controlOf, MINUTE } from "../doubles/mirror-journey.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { hello, newKey, post, startSandbox, type TestGateway } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";
import { Partition } from "../shared/partition.ts";
import { emptyStore, missingStore, type StoreServer } from "../shared/redis.ts";

const skip = missingStore() ?? false;

interface MachineUnderTest extends DaemonUnderTest {
  readonly name: string;
  readonly partition: Partition;
  ask(): Promise<void>;
  status(): Promise<Status>;
  /** Reads the console, and compares. */
  compare(): Promise<MirrorReport>;
}

interface World {
  readonly laptop: MachineUnderTest;
  readonly desktop: MachineUnderTest;
  /** The key of each machine. */
  readonly keys: readonly [laptop: string, desktop: string];
  /** Rows that were too recent to be called foreign are old enough afterwards. */
  passMinute(): void;
  /** Both machines report to the store. */
  nextContact(): Promise<void>;
  /** Compares until the rows are as expected: the records of another machine come some seconds later. */
  compares(machine: MachineUnderTest, rows: Partial<Rows>, what: string): Promise<MirrorReport>;
}

type Rows = MirrorReport["rows"];

/** Machines are in contact with the store at least this often. */
const CONTACT_MS = 10_000;
/** The console refuses clients that ask all the time. */
const PAUSE_MS = 500;

async function startWorld(t: Test, hasOneKey: boolean): Promise<World> {
  const clock = movableClock();
  // The world begins at noon, so that no day ends during a test.
  clock.pass((36 * 3_600_000 - (clock.now() % 86_400_000)) % 86_400_000);
  const store = await emptyStore();
  const sandbox = await startSandbox(t, { clock });
  const first = newKey(sandbox).text;
  const second = hasOneKey ? first : newKey(sandbox).text;
  const common = { store, sandbox, clock, secret: randomBytes(32).toString("hex") };
  const laptop = await startMachine(t, "laptop", { ...common, key: first });
  const desktop = await startMachine(t, "desktop", { ...common, key: second });
  const machines = [laptop, desktop];

  /** For the store, too. */
  function pass(milliseconds: number): void {
    clock.pass(milliseconds);
    for (const { partition } of machines) partition.storeAhead += milliseconds;
  }

  async function nextContact(): Promise<void> {
    pass(CONTACT_MS);
    await wait(PAUSE_MS);
  }

  async function compares(machine: MachineUnderTest, rows: Partial<Rows>, what: string) {
    let report = await machine.compare();
    const isExpected = () =>
      Object.entries(rows).every(([name, count]) => report.rows[name as keyof Rows] === count);
    await until(what, async () => {
      if (isExpected()) return true;
      await nextContact();
      report = await machine.compare();
      return false;
    }).catch((error) => t.comment(String(error)));
    t.match(report.rows, rows, `${machine.name}: ${what}`);
    return report;
  }

  await until("both machines know each other", async () => {
    const known = await Promise.all(machines.map(async (machine) => (await machine.status()).shared));
    await nextContact();
    return known.every((shared) => shared?.state === "connected" && shared.machines.length === 2);
  });
  return { laptop, desktop, keys: [first, second], passMinute: () => pass(MINUTE), nextContact, compares };
}

interface MachineParts {
  readonly secret: string;
  readonly store: StoreServer;
  readonly sandbox: TestGateway;
  readonly clock: Clock;
  readonly key: string;
}

async function startMachine(t: Test, name: string, parts: MachineParts): Promise<MachineUnderTest> {
  const { store, sandbox, clock, key } = parts;
  const { account } = sandbox;
  const partition = await Partition.start(t, store.port);
  // The store's clock and the machines' stay together.
  partition.storeAhead = clock.now() - Date.now();
  const { token, hash } = freshToken();
  const login = { email: account.email, password: account.password.reveal() };
  const config = {
    gateways: {
      main: { base_url: sandbox.baseUrl, console: { kind: "sub2api", url: sandbox.origin, login } },
    },
    tools: { codex: { key, token: hash } },
    shared: {
      store: {
        url: `redis://127.0.0.1:${partition.port}`,
        username: store.username,
        password: store.password,
      },
      secret: parts.secret,
      machine: name,
      timezone: "UTC",
    },
  };
  const under = await startUnderTest(t, stringify(config), { clock });
  const control = <T>(method: "GET" | "POST", path: string, body?: unknown) =>
    controlOf<T>(under.paths.socket, method, path, body);
  const idle = () =>
    until("the sync is over", async () => {
      const [console] = (await under.daemon.status()).consoles;
      return console !== undefined && console.state !== "syncing";
    });
  return {
    ...under,
    name,
    partition,
    status: () => control("GET", "/status"),
    async ask() {
      const { status } = await post(`${under.url}/v1/chat/completions`, token, hello());
      t.equal(status, 200, `${name} sends a request`);
    },
    async compare() {
      await idle();
      await control("POST", "/sync/main", {});
      await idle();
      const [report] = await control<MirrorReport[]>("GET", "/mirror");
      if (report === undefined) throw new Error("no console is mirrored");
      return report;
    },
  };
}

/** As `curl` with a stolen key does. */
async function steal(t: Test, { daemon }: MachineUnderTest, key: string): Promise<void> {
  const { baseUrl } = daemon.snapshot().config.gateways.main ?? {};
  const { status } = await post(`${baseUrl}/chat/completions`, key, hello());
  t.equal(status, 200, "the thief is served");
}

t.test("of one account with a key for each machine, only a thief's row is foreign", { skip }, async (t) => {
  const { laptop, desktop, keys, passMinute, compares } = await startWorld(t, false);
  for (let round = 0; round < 3; round += 1) {
    await laptop.ask();
    await desktop.ask();
  }
  passMinute();
  // The rows of a key that a machine does not hold are not its own to judge.
  const own = { by_id: 3, foreign_certain: 0, foreign_suspected: 0, unwatched: 0 };
  for (const machine of [laptop, desktop]) {
    const report = await compares(machine, own, "every row is a machine's own");
    t.strictSame(report.alarms, []);
  }

  await steal(t, laptop, keys[0]);
  passMinute();
  await compares(laptop, { foreign_certain: 1, by_id: 3 }, "a thief's row is foreign");
  await compares(desktop, { foreign_certain: 0, by_id: 3 }, "where the key is held");
});

t.test("of one key for both machines, only a thief's rows are foreign", { skip }, async (t) => {
  const { laptop, desktop, keys, passMinute, nextContact, compares } = await startWorld(t, true);
  const machines = [laptop, desktop];

  await t.test("the other machine's rows are not foreign", async (t) => {
    for (const machine of machines) await machine.ask();
    passMinute();
    const own = { by_id: 2, foreign_certain: 0, foreign_suspected: 0, unwatched: 0 };
    for (const machine of machines) {
      const report = await compares(machine, own, "all rows match");
      t.strictSame(report.alarms, []);
    }
    await until("the laptop knows that it has all records of the desktop", async () => {
      await nextContact();
      return (await laptop.compare()).unseen_machines.length === 0;
    });
  });

  await t.test("a machine that the other cannot see raises no alarm", async (t) => {
    desktop.partition.set("cut");
    for (let round = 0; round < 3; round += 1) await desktop.ask();
    passMinute();
    const rows = { by_id: 2, unwatched: 3, foreign_certain: 0 };
    const blind = await compares(laptop, rows, "it may be the desktop's");
    t.strictSame(blind.alarms, []);
    t.match(blind.unseen_machines, [{ machine: "desktop", since: Number }]);
    t.notMatch(laptop.logText(), /used outside keybearer/);
    await compares(desktop, { by_id: 5, unwatched: 0, foreign_certain: 0 }, "it knows its own");
  });

  await t.test("a thief who is there while a machine is away is found when it is back", async (t) => {
    await steal(t, laptop, keys[0]);
    passMinute();
    const rows = { by_id: 2, unwatched: 4, foreign_certain: 0 };
    const blind = await compares(laptop, rows, "it may be the desktop's");
    t.strictSame(blind.alarms, []);

    desktop.partition.set("pass");
    passMinute();
    for (const machine of machines) {
      const found = { by_id: 5, unwatched: 0, foreign_certain: 1 };
      const { alarms } = await compares(machine, found, "the thief's row is foreign");
      t.match(alarms, [{ certain: true, count: 1 }]);
    }
  });

  await t.test("a thief who is there while both are connected is found by both", async (t) => {
    await steal(t, laptop, keys[0]);
    passMinute();
    for (const machine of machines)
      await compares(machine, { by_id: 5, unwatched: 0, foreign_certain: 2 }, "the thief's rows are foreign");
  });

  await t.test("a thief who is there after a machine stopped is a suspicion", async (t) => {
    await desktop.daemon.stop();
    await steal(t, laptop, keys[0]);
    passMinute();
    const rows = { by_id: 5, unwatched: 0, foreign_certain: 2, foreign_suspected: 1 };
    const why = "the desktop may run again without the store";
    const { alarms, unseen_machines } = await compares(laptop, rows, why);
    t.match(
      alarms.filter(({ certain }) => !certain),
      [{ count: 1 }],
    );
    t.strictSame(unseen_machines, [], "it hides nothing");
  });
});
