import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import t, { type Test } from "tap";
import { limitLines } from "../../src/cli/tools/limit-lines.ts";
import { limitStatuses } from "../../src/control/tool-status.ts";
import { advice } from "../../src/core/advice.ts";
import { type Clock, systemClock } from "../../src/core/clock.ts";
import { sharedFindings } from "../../src/doctor/shared-findings.ts";
import { takenInAll } from "../../src/limits/counters.ts";
import { sharedProblems } from "../../src/shared/status.ts";
import { advised } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { hello, newKey, post, startSandbox } from "../doubles/sandbox.ts";
import { atScreen } from "../doubles/screen.ts";
import { until } from "../doubles/until.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";
import { newFolder } from "../usage/journal/journal-under-test.ts";
import { LimiterMachine, ONE } from "./limiter-machine.ts";
import { Partition } from "./partition.ts";
import { emptyStore, missingStore, StoreServer } from "./redis.ts";

const skip = missingStore() ?? false;

async function twoMachines(test: Test, settings: string, clock: Clock = systemClock) {
  const store = await emptyStore();
  const laptop = new LimiterMachine(test, store, "laptop", { settings, clock });
  const desktop = new LimiterMachine(test, store, "desktop", { settings, clock });
  await laptop.connected();
  await desktop.connected();
  return { store, laptop, desktop };
}

/** The seconds pass in which a store that lost its data grants nothing. */
async function passSettling(store: StoreServer): Promise<void> {
  const settled = Number(await store.admin(["HGET", "keybearer:generation", "settled"]));
  if (settled <= Date.now()) throw new Error("the store has settled");
  await store.admin(["HSET", "keybearer:generation", "settled", String(Date.now())]);
}

t.test("two machines together never get more than the limit", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 20/day }");
  const outcomes: string[] = [];
  for (let at = 0; at < 15; at += 1) outcomes.push(await laptop.send(), await desktop.send());
  t.equal(outcomes.filter((outcome) => outcome === "go").length, 20);
  t.equal(outcomes.filter((outcome) => outcome === "rate-limited").length, 10);
});

t.test("what is not used goes back, so one machine can use all of the limit", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 20/day }");
  t.equal(await desktop.send(), "go");
  await desktop.shared.stop();
  let went = 0;
  while ((await laptop.send()) === "go") went += 1;
  t.equal(went, 19);
});

t.test("requests at the same time share one limit", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { concurrent: 2 }");
  const first = await laptop.take();
  const second = await desktop.take();
  t.ok(first.ok && second.ok, JSON.stringify([first, second]));
  t.equal(await laptop.send(), "too-many-at-once");
  t.equal(await desktop.send(), "too-many-at-once");
  if (first.ok) laptop.end(first.lease);
  await until("the place is free again", async () => (await desktop.send()) === "go");
});

t.test("a refusal and `tools` count the places of other machines alike", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { concurrent: 1 }");
  const first = await laptop.take();
  t.ok(first.ok);
  // The laptop's place was granted before its request was in flight, and no report has followed yet.
  t.match(await desktop.take(), {
    ok: false,
    refusal: { message: /: 1 of 1 requests in flight \(1 on other machines\)/ },
  });
  const statuses = limitStatuses(desktop.limiter.levels(desktop.tool), (level) =>
    desktop.shared.listParts(desktop.tool.name, level),
  );
  t.match(statuses, [{ limit: "concurrent", used: 1, held: 0, most: 1 }]);
  const lines = limitLines(statuses, Date.now(), { width: 80, utf8: false }).flat();
  t.match(lines.join("\n"), / 1\/1\n +desktop 0, laptop 1$/);
});

longTest(
  t,
  "a place that another machine holds is the reason, not a limit that has room",
  { skip },
  async (t) => {
    const { laptop, desktop } = await twoMachines(t, "limits: { concurrent: 1, requests: 50/day }");
    const first = await laptop.take();
    t.ok(first.ok);
    t.match(await desktop.take(), {
      ok: false,
      refusal: {
        code: "too-many-at-once",
        retryAfter: 5,
        message: /limit of 1 at once: 1 of 1 requests in flight \(1 on other machines\)/,
      },
    });
    // A request that waits for the place is no reason for another one either.
    desktop.configure("limits: { concurrent: 1, requests: 50/day, wait: 1m }");
    const waits = desktop.take();
    await until("it waits", () => desktop.limiter.isWaiting("codex"));
    if (first.ok) laptop.end(first.lease);
    t.match(await waits, { ok: true });
  },
);

t.test("status says what each machine holds, and finds two with one name", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 80/day, concurrent: 4 }");
  const first = await laptop.take();
  t.ok(first.ok);
  await desktop.shared.refresh();
  const found = () => desktop.shared.status()?.machines.find(({ self }) => !self);
  t.match(found(), {
    name: "laptop",
    silent: false,
    stopped: false,
    holds: [
      { tool: "codex", limit: "requests", per: "day", amount: Number },
      { tool: "codex", limit: "concurrent", per: null, amount: 1 },
    ],
  });
  if (first.ok) laptop.end(first.lease);
  desktop.callMachine("laptop");
  await until("the store knows the new name", async () => {
    await desktop.shared.refresh();
    const shared = desktop.shared.status();
    return shared !== null && sharedProblems(shared, Date.now()).some(({ level }) => level === "problem");
  });
  await laptop.shared.stop();
  await until("the other one stopped", async () => {
    await desktop.shared.refresh();
    return found()?.stopped === true;
  });
  t.match(found(), { holds: [] });
});

t.test("a window of a second holds for both machines", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 3/second }");
  const second = () => Math.floor(Date.now() / 1000);
  const begin = second();
  const outcomes = await Promise.all([1, 2, 3, 4, 5].flatMap(() => [laptop.send(), desktop.send()]));
  const windows = second() - begin + 1;
  const went = outcomes.filter((outcome) => outcome === "go").length;
  t.ok(went >= 3 && went <= 3 * windows, `${went} went in ${windows} windows`);
});

t.test("tokens are held and given back", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { tokens: 1000/day }");
  const taken = await laptop.take({ tokens: 700, spend: 0 });
  t.ok(taken.ok);
  t.equal(await desktop.send({ tokens: 700, spend: 0 }), "tokens-limited");
  if (taken.ok) laptop.limiter.settle(taken.lease, { tokens: 100, spend: 0 });
  await laptop.shared.stop();
  t.equal(await desktop.send({ tokens: 700, spend: 0 }), "go");
});

t.test("while the store is away, a machine spends its grant, and then refuses", { skip }, async (t) => {
  const store = await emptyStore();
  const partition = await Partition.start(t, store.port);
  const settings = "limits: { requests: 40/day }";
  const laptop = new LimiterMachine(t, store, "laptop", { settings, port: partition.port });
  await laptop.connected();
  t.equal(await laptop.send(), "go");
  partition.set("cut");
  await until("the store is away", () => laptop.shared.status()?.state === "unreachable");
  const outcomes: string[] = [];
  while (outcomes.at(-1) !== "store-unavailable") outcomes.push(await laptop.send());
  t.ok(outcomes.length > 1 && outcomes.length < 12, "it spent what it held, which was a part");
  const refused = await laptop.take();
  t.match(refused, {
    ok: false,
    refusal: { message: /^tool codex .* through redis:\/\/127\.0\.0\.1:\d+, / },
  });
  partition.set("pass");
  await laptop.connected();
  t.equal(await laptop.send(), "go");
});

t.test("with when_unreachable: refuse, it refuses at once", { skip }, async (t) => {
  const store = await emptyStore();
  const partition = await Partition.start(t, store.port);
  const settings = "limits: { requests: 40/day }";
  const options = { settings, port: partition.port, whenUnreachable: "refuse" } as const;
  const laptop = new LimiterMachine(t, store, "laptop", options);
  await laptop.connected();
  t.equal(await laptop.send(), "go");
  partition.set("cut");
  await until("the store is away", () => laptop.shared.status()?.state === "unreachable");
  t.equal(await laptop.send(), "store-unavailable");
});

t.test("a store that does not answer counts as away", { skip }, async (t) => {
  const store = await emptyStore();
  const partition = await Partition.start(t, store.port);
  const laptop = new LimiterMachine(t, store, "laptop", {
    settings: "limits: { requests: 5/second }",
    port: partition.port,
  });
  await laptop.connected();
  partition.set("black-hole");
  t.equal(await laptop.send(), "store-unavailable");
});

t.test("a store that lost its data grants nothing until every machine has reported", { skip }, async (t) => {
  const { store, laptop, desktop } = await twoMachines(t, "limits: { requests: 20/day }");
  for (let at = 0; at < 8; at += 1) t.equal(await laptop.send(), "go");
  await laptop.shared.refresh();
  await desktop.shared.refresh();
  await laptop.shared.stop();
  await store.admin(["FLUSHALL"]);
  // The desktop may still spend what it holds, which is nothing.
  await until("it waits for the laptop", async () => {
    const taken = await desktop.take();
    return !taken.ok && taken.refusal?.message.includes("until these machines have reported: laptop.");
  });
  t.match(desktop.shared.status(), { recovering: ["laptop"], settled: false });
  t.equal(await desktop.shared.release(desktop.tool, "nobody"), "unknown");
  t.equal(await desktop.shared.release(desktop.tool, "laptop"), "released");
  t.equal(await desktop.send(), "store-unavailable", "the machines have some seconds to join again");
  await passSettling(store);
  t.equal(await desktop.send(), "go");
});

longTest(t, "a machine that has not reported since a loss is not called unsigned", { skip }, async (t) => {
  const store = await emptyStore();
  const settings = "limits: { requests: 20/day }";
  const secret = "0123456789abcdef0123456789abcdef";
  const laptop = new LimiterMachine(t, store, "laptop", { settings, secret });
  const desktop = new LimiterMachine(t, store, "desktop", { settings, secret });
  const signatures = () => {
    const { machines = [] } = desktop.shared.status() ?? {};
    return Object.fromEntries(machines.map(({ name, signature }) => [name, signature]));
  };
  const findings = () =>
    sharedFindings(desktop.shared.status(), Date.now()).filter(({ what }) => what.includes(" sign "));
  await laptop.connected();
  await until("both sign", async () => {
    await desktop.shared.refresh();
    return isDeepStrictEqual(signatures(), { laptop: "valid", desktop: "valid" });
  });
  await laptop.shared.stop();
  await store.admin(["FLUSHALL"]);
  await until("the store lists it again", async () => {
    await desktop.shared.refresh();
    return desktop.shared.status()?.recovering.includes("laptop");
  });
  t.strictSame(signatures(), { laptop: null, desktop: "valid" });
  t.strictSame(findings(), []);
  const { folder } = laptop;
  const unsigned = new LimiterMachine(t, store, "laptop", { settings, folder });
  await unsigned.connected();
  await until("it has reported", async () => {
    await desktop.shared.refresh();
    return desktop.shared.status()?.recovering.length === 0;
  });
  t.strictSame(signatures(), { laptop: "missing", desktop: "valid" });
  t.match(findings(), [{ level: "warning", what: /do not sign their records: laptop/ }]);
});

longTest(
  t,
  "the owner of a refused tool can type the command that releases a lost machine",
  { skip },
  async (t) => {
    const store = await emptyStore();
    const settings = "limits: { requests: 20/day }";
    const laptop = new LimiterMachine(t, store, "laptop", { settings });
    await laptop.connected();
    t.equal(await laptop.send(), "go");
    const gateway = await startSandbox(t);
    const { token, hash } = freshToken();
    const desktop = await startUnderTest(
      t,
      `gateway: ${gateway.baseUrl}
tools: { codex: { key: ${newKey(gateway).text}, token: "${hash}", ${settings} } }
shared:
  store: { url: "redis://127.0.0.1:${store.port}", username: ${store.username}, password: "${store.password}" }
  machine: desktop
  timezone: ${zoneAtNoon()}
`,
    );
    const status = async () => (await desktop.daemon.status()).shared;
    await until("it knows the laptop", async () => /laptop/.test(JSON.stringify((await status())?.machines)));
    await laptop.shared.stop();
    await store.admin(["FLUSHALL"]);
    const chat = () => post(`${desktop.url}/v1/chat/completions`, token, hello());
    let refused = "";
    await until("it waits for the laptop", async () => {
      refused = (await chat()).text;
      return refused.includes("--machine laptop");
    });
    const args = advised(t, JSON.parse(refused).error.message, advice.releaseMachine("codex", "laptop"));
    const person = atScreen(t, desktop.home, args);
    await person.says(/\[y\/N\]/);
    person.type("y\r");
    t.match(await person.ended, { code: 0, stdout: /what machine laptop held .* was released/ });
    t.match(await status(), { recovering: [] });
    await passSettling(store);
    t.equal((await chat()).status, 200);
  },
);

longTest(
  t,
  "after a loss of data, a machine that does not know the others waits until they have joined again",
  { skip },
  async (t) => {
    const store = await emptyStore();
    const settings = "limits: { requests: 20/day }";
    const before = new LimiterMachine(t, store, "laptop", { settings });
    await before.connected();
    await before.shared.stop();
    const partition = await Partition.start(t, store.port);
    const desktop = new LimiterMachine(t, store, "desktop", { settings, port: partition.port });
    await desktop.connected();
    for (let at = 0; at < 8; at += 1) t.equal(await desktop.send(), "go");

    partition.set("cut");
    await store.admin(["FLUSHALL"]);
    const laptop = new LimiterMachine(t, store, "laptop", { settings, folder: before.folder });
    await laptop.connected();
    t.match(await laptop.take(), {
      refusal: { message: /for some seconds, in which the machines join again/ },
    });
    partition.set("pass");
    await desktop.connected();

    await desktop.shared.refresh();
    t.equal(await laptop.send(), "store-unavailable");
    await passSettling(store);
    let went = 8;
    t.equal(await laptop.send(), "go");
    went += 1;
    while ((await laptop.send()) === "go") went += 1;
    while ((await desktop.send()) === "go") went += 1;
    t.ok(went <= 20, `${went} of 20 went`);
  },
);

t.test(
  "what a lost machine holds can be released by the owner, and not while it is there",
  { skip },
  async (t) => {
    const { laptop, desktop } = await twoMachines(t, "quota: $1");
    t.equal(await laptop.send({ tokens: 0, spend: 100_000 }), "go");
    await laptop.shared.refresh();
    await desktop.shared.refresh();
    t.equal(await desktop.shared.release(desktop.tool, "laptop"), "present");
    const [level] = desktop.limiter.levels(desktop.tool).levels;
    t.match(level?.grant, { usedElsewhere: 100_000 });
  },
);

t.test("two machines with different time zones do not share a day", { skip }, async (t) => {
  const store = await emptyStore();
  const settings = "limits: { requests: 20/day }";
  const laptop = new LimiterMachine(t, store, "laptop", { settings, timezone: "Europe/Berlin" });
  await laptop.connected();
  const desktop = new LimiterMachine(t, store, "desktop", { settings, timezone: "Asia/Tokyo" });
  await until("it is refused", () => desktop.shared.status()?.state === "refused");
  t.match(desktop.shared.status()?.problem, /the time zone Europe\/Berlin, this one in Asia\/Tokyo/);
  t.equal(await desktop.send(), "store-unavailable");
});

t.test(
  "two requests that each need most of a limit do not block each other with parts of it",
  { skip },
  async (t) => {
    const clock = movableClock();
    const settings = "limits: { tokens: 1000/day, requests: 50/day, wait: 10m }";
    const { laptop, desktop } = await twoMachines(t, settings, clock);
    for (const machine of [laptop, desktop]) t.equal(await machine.send({ tokens: 100, spend: 0 }), "go");
    const passes = async (machine: LimiterMachine, tokens: number) => {
      const taken = await machine.take({ tokens, spend: 0 });
      t.ok(taken.ok, `${tokens} tokens`);
      // It uses less than it held, so the other one passes, too.
      if (taken.ok) machine.limiter.settle(taken.lease, { tokens: 10, spend: 0 });
    };
    let passed = 0;
    const both = [passes(laptop, 750), passes(desktop, 700)].map((one) => one.then(() => (passed += 1)));
    // What is unused goes back to the store after ten seconds.
    let seconds = 0;
    await until("both pass", () => {
      if (seconds < 12) clock.pass(1000);
      seconds += 1;
      return passed === 2;
    });
    await Promise.all(both);
  },
);

t.test("a limit that was lowered holds for all machines together", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 80/day }");
  for (const machine of [laptop, desktop]) t.equal(await machine.send(), "go");
  for (const machine of [laptop, desktop]) machine.configure("limits: { requests: 6/day }");
  const outcomes: string[] = [];
  for (let at = 0; at < 10; at += 1) outcomes.push(await laptop.send(), await desktop.send());
  t.ok(outcomes.filter((outcome) => outcome === "go").length <= 4, "two of the six were used before");
});

t.test("a tool that no longer shares its limits leaves what it used", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 20/day }");
  for (let at = 0; at < 5; at += 1) t.equal(await laptop.send(), "go");
  laptop.configure("limits: { requests: 20/day }, shared: false");
  await laptop.shared.stop();
  let went = 0;
  while ((await desktop.send()) === "go") went += 1;
  t.equal(went, 15);
});

t.test("a limit that one machine no longer has is free for the others", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { concurrent: 1 }");
  t.equal(await laptop.send(), "go");
  laptop.configure("limits: { requests: 99/day }");
  await laptop.shared.refresh();
  t.equal(await desktop.send(), "go");
});

t.test("a tool that gets another name keeps sharing", { skip }, async (t) => {
  const settings = "limits: { requests: 20/day }";
  const timezone = "Europe/Berlin";
  const laptop = new LimiterMachine(t, await emptyStore(), "laptop", { settings, timezone });
  await laptop.connected();
  t.equal(await laptop.send(), "go");
  const old = laptop.tool;
  laptop.rename("chat", settings);
  const window = laptop.limiter.levels(laptop.tool).levels[0]?.window;
  // Midnight in Berlin, not in the zone of this process.
  t.match(new Date(window?.start ?? 0).toISOString(), /T2[23]:00:00/);
  t.equal(laptop.limiter.takeNow(old, ONE) !== null, laptop.limiter.takeNow(laptop.tool, ONE) !== null);
});

t.test("a request that began before its tool was removed is refused", { skip }, async (t) => {
  const { laptop } = await twoMachines(t, "limits: { requests: 20/day }");
  const old = laptop.tool;
  laptop.rename("chat", "limits: { requests: 20/day }", false);
  t.equal(laptop.limiter.takeNow(old, ONE), null);
  const taken = await laptop.limiter.take(
    old,
    { ask: ONE, model: null, lacksModel: false, mayWait: true },
    () => {},
  );
  t.match(taken, { ok: false, refusal: { code: "token-unknown" } });
});

t.test("a new machine that never reported does not delay the others", { skip }, async (t) => {
  const { store, laptop } = await twoMachines(t, "quota: $1");
  t.equal(await laptop.send({ tokens: 0, spend: 1000 }), "go");
  const partition = await Partition.start(t, store.port);
  const tablet = new LimiterMachine(t, store, "tablet", { settings: "quota: $1", port: partition.port });
  await tablet.connected();
  partition.set("black-hole");
  t.equal(await laptop.send({ tokens: 0, spend: 500_000 }), "go");
  // Otherwise the tablet waits two seconds for an answer before it stops.
  partition.set("cut");
});

longTest(
  t,
  "a copy of a state folder is another machine, and takes nothing from the first",
  { skip },
  async (t) => {
    const settings = "limits: { requests: 20/day }";
    const store = await StoreServer.start(t);
    const laptop = new LimiterMachine(t, store, "laptop", { settings });
    await laptop.connected();
    for (let at = 0; at < 5; at += 1) t.equal(await laptop.send(), "go");
    const folder = newFolder(t);
    writeFileSync(join(folder, "shared.json"), readFileSync(join(laptop.folder, "shared.json")));
    // The first one connects again meanwhile, so the copy is older.
    await store.stop();
    await until("the store is away", () => laptop.shared.status()?.state === "unreachable");
    await store.restart();
    await laptop.connected();
    t.equal(await laptop.send(), "go");
    const copy = new LimiterMachine(t, store, "copy", { settings, folder });
    await copy.connected();
    let went = 6;
    for (const machine of [laptop, copy, laptop, copy]) {
      await machine.shared.refresh();
      while ((await machine.send()) === "go") went += 1;
    }
    t.equal(went, 20, `${went} went`);
  },
);

t.test("after a tool got another name here, what it used stays used for the others", { skip }, async (t) => {
  const settings = "limits: { requests: 20/day }";
  const { laptop, desktop } = await twoMachines(t, settings);
  while ((await laptop.send()) === "go");
  laptop.rename("chat", settings);
  await laptop.shared.refresh();
  t.equal(await desktop.send(), "rate-limited");
});

t.test("nothing connects after a stop, not even for a new configuration", { skip }, async (t) => {
  const { store, laptop, desktop } = await twoMachines(t, "limits: { requests: 20/day }");
  for (const machine of [laptop, desktop]) {
    await machine.shared.stop();
    machine.callMachine("another-name");
  }
  await laptop.shared.stop();
  const clients = String(await store.admin(["CLIENT", "LIST"]));
  t.notMatch(clients, "user=keybearer");
});

t.test("the others know that a machine stopped, and that all its records are here", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 20/day }");
  const before = Date.now();
  await laptop.shared.stop();
  await until("the desktop knows", async () => {
    await desktop.shared.refresh();
    return desktop.shared.siblings()[0]?.isStopped;
  });
  const seenUntil = () => desktop.shared.siblings()[0]?.seenUntil ?? 0;
  await until("its records are here", () => seenUntil() >= before - 1000);
  t.ok(seenUntil() <= Date.now(), "until it stopped, not for good");
});

/** The store's entry of a machine. */
async function listed(
  store: StoreServer,
  name: string,
): Promise<{ id: string; entry: Record<string, unknown> }> {
  for (const id of (await store.admin(["HKEYS", "keybearer:machines"])) as string[]) {
    const entry = JSON.parse(String(await store.admin(["HGET", "keybearer:machines", id])));
    if (entry.name === name) return { id, entry };
  }
  throw new Error(`${name} is not listed`);
}

async function change(store: StoreServer, name: string, fields: Record<string, unknown>): Promise<void> {
  const { id, entry } = await listed(store, name);
  await store.admin(["HSET", "keybearer:machines", id, JSON.stringify({ ...entry, ...fields })]);
}

longTest(t, "a machine that was released and comes back does not spend what it held", { skip }, async (t) => {
  const store = await emptyStore();
  const partition = await Partition.start(t, store.port);
  const settings = "limits: { requests: 40/day }";
  const laptop = new LimiterMachine(t, store, "laptop", { settings, port: partition.port });
  const desktop = new LimiterMachine(t, store, "desktop", { settings });
  await laptop.connected();
  await desktop.connected();
  t.equal(await laptop.send(), "go");
  await laptop.shared.refresh();
  partition.set("cut");
  await until("the store is away", () => laptop.shared.status()?.state === "unreachable");
  await change(store, "laptop", { seen: Date.now() - 120_000 });
  await desktop.shared.refresh();
  t.equal(await desktop.shared.release(desktop.tool, "laptop"), "released");
  let went = 1;
  while ((await desktop.send()) === "go") went += 1;
  t.equal(went, 40);
  partition.set("pass");
  await laptop.connected();
  await laptop.shared.refresh();
  t.equal(await laptop.send(), "rate-limited");
});

longTest(
  t,
  "a machine keeps its identity in a store that was restored from a backup",
  { skip },
  async (t) => {
    const store = await emptyStore();
    const partition = await Partition.start(t, store.port);
    const laptop = new LimiterMachine(t, store, "laptop", { settings: "quota: $1", port: partition.port });
    const away = () => until("the store is away", () => laptop.shared.status()?.state === "unreachable");
    await laptop.connected();
    const { id, entry } = await listed(store, "laptop");
    for (const connection of [null, entry.connection]) {
      partition.set("cut");
      await away();
      if (connection !== null) await change(store, "laptop", { connection });
      partition.set("pass");
      await laptop.connected();
      const now = await listed(store, "laptop");
      t.equal(now.id, id);
      t.not(now.entry.connection, entry.connection);
    }
  },
);

t.test("after a loss of data, the keys of a machine that is away are not forgotten", { skip }, async (t) => {
  const store = await emptyStore();
  const folder = newFolder(t);
  const attic = { id: "00000000000000aa", name: "attic", keys: ["…abcd"], seenUntil: 1, isStopped: true };
  const state = { id: "00000000000000bb", connections: [], known: [attic], positions: {} };
  writeFileSync(join(folder, "shared.json"), JSON.stringify(state));
  const laptop = new LimiterMachine(t, store, "laptop", { settings: "limits: { requests: 20/day }", folder });
  await laptop.connected();
  await laptop.shared.refresh();
  t.strictSame(laptop.shared.siblings(), [{ ...attic, isVerified: false }]);
});

t.test("a store that lost data waits also if a new machine was there first", { skip }, async (t) => {
  const { store, laptop, desktop } = await twoMachines(t, "limits: { requests: 20/day }");
  t.equal(await laptop.send(), "go");
  await laptop.shared.stop();
  await desktop.shared.stop();
  await store.admin(["FLUSHALL"]);
  const settings = "limits: { requests: 20/day }";
  const attic = new LimiterMachine(t, store, "attic", { settings });
  await attic.connected();
  t.equal(await attic.send(), "go", "for a new machine this is a new store");
  await attic.shared.stop();
  const again = new LimiterMachine(t, store, "laptop", { settings, folder: laptop.folder });
  await again.connected();
  t.match(await again.take(), { refusal: { code: "store-unavailable" } });
});

t.test(
  "a machine that another one listed after a loss of data keeps its grant, and joins again",
  { skip },
  async (t) => {
    const { store, laptop } = await twoMachines(t, "limits: { requests: 80/day }");
    t.equal(await laptop.send(), "go");
    await change(store, "laptop", { connection: "" });
    await laptop.shared.refresh();
    t.equal(await laptop.send(), "go", "of its grant");
    await laptop.connected();
  },
);

t.test(
  "a machine that is released while it is connected loses its grant, and joins again",
  { skip },
  async (t) => {
    const { store, laptop } = await twoMachines(t, "limits: { requests: 80/day }");
    t.equal(await laptop.send(), "go");
    await change(store, "laptop", { connection: "", gone: true });
    await laptop.shared.refresh();
    t.equal(await laptop.send(), "store-unavailable");
    await laptop.connected();
    t.equal(await laptop.send(), "go");
  },
);

t.test(
  "after months, the store does not wait for a lost machine, and its quota can be released",
  { skip },
  async (t) => {
    const { store, laptop, desktop } = await twoMachines(t, "quota: $1");
    t.equal(await laptop.send({ tokens: 0, spend: 100_000 }), "go");
    await laptop.shared.stop();
    const { id } = await listed(store, "laptop");
    await store.admin(["HSET", "keybearer:window:codex:quota", id, "900000 100000 0"]);
    await change(store, "laptop", { seen: Date.now() - 71 * 86_400_000 });
    await store.admin(["DEL", "keybearer:generation"]);
    const send = () => desktop.send({ tokens: 0, spend: 800_000 });
    await until("the store does not wait", async () => (await send()) === "quota-exhausted");
    t.equal(await desktop.shared.release(desktop.tool, "laptop"), "released");
    t.equal(await send(), "go");
  },
);

t.test("of two limits with one period, the lower one counts", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: [3/day, 20/day] }");
  const outcomes: string[] = [];
  for (let at = 0; at < 3; at += 1) outcomes.push(await laptop.send(), await desktop.send());
  t.strictSame(outcomes.sort(), ["go", "go", "go", "rate-limited", "rate-limited", "rate-limited"]);
});

t.test("without a time zone that has a name, the owner learns what to set", { skip }, async (t) => {
  const store = await emptyStore();
  const before = process.env.TZ;
  t.teardown(() => {
    if (before === undefined) delete process.env.TZ;
    else process.env.TZ = before;
  });
  process.env.TZ = "Foo/Bar";
  const settings = "limits: { requests: 20/day }";
  const laptop = new LimiterMachine(t, store, "laptop", { settings, timezone: null });
  await until("it says why", () => laptop.shared.status()?.state === "refused");
  t.match(laptop.shared.status(), { problem: /has no known name/, next: /shared\.timezone/ });
  t.equal(await laptop.send(), "store-unavailable");
});

t.test(
  "requests of a tool that was removed are cut, too, when the store is silent for too long",
  { skip },
  async (t) => {
    const store = await emptyStore();
    const partition = await Partition.start(t, store.port);
    const clock = movableClock();
    const settings = "limits: { concurrent: 2 }";
    const laptop = new LimiterMachine(t, store, "laptop", { settings, port: partition.port, clock });
    await laptop.connected();
    t.ok((await laptop.take()).ok);
    laptop.rename("chat", settings, false);
    partition.set("cut");
    await until("the store is away", () => laptop.shared.status()?.state === "unreachable");
    t.strictSame(laptop.cut, []);
    clock.pass(51_000);
    await until("they are cut", () => laptop.cut.includes("codex"));
  },
);

t.test("when a machine stops sharing, what it used stays used", { skip }, async (t) => {
  const { laptop, desktop } = await twoMachines(t, "limits: { requests: 20/day }");
  for (let at = 0; at < 5; at += 1) t.equal(await laptop.send(), "go");
  laptop.stopSharing();
  await until("the rest goes back", async () => {
    await desktop.shared.refresh();
    const [level] = desktop.limiter.levels(desktop.tool).levels;
    return level !== undefined && takenInAll(level).used + takenInAll(level).held === 5;
  });
  let went = 0;
  while ((await desktop.send()) === "go") went += 1;
  t.equal(went, 15);
});

t.test("a grant ends a minute before its day does, while the store is away", { skip }, async (t) => {
  const store = await emptyStore();
  const partition = await Partition.start(t, store.port);
  const clock = movableClock();
  const settings = "limits: { requests: 80/day }";
  const laptop = new LimiterMachine(t, store, "laptop", { settings, port: partition.port, clock });
  await laptop.connected();
  t.equal(await laptop.send(), "go");
  partition.set("cut");
  await until("the store is away", () => laptop.shared.status()?.state === "unreachable");
  const end = laptop.limiter.levels(laptop.tool).levels[0]?.window?.end ?? 0;
  clock.pass(end - 180_000 - clock.now());
  t.equal(await laptop.send(), "go");
  clock.pass(150_000);
  t.equal(await laptop.send(), "store-unavailable");
});
