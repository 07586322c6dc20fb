import { randomBytes } from "node:crypto";
import { join } from "node:path";
import t from "tap";
import { Secret } from "../../src/core/secret.ts";
import { sharedFindings } from "../../src/doctor/shared-findings.ts";
import type { MirrorReport } from "../../src/mirror/report/shape.ts";
import { textOfRecord } from "../../src/shared/records.ts";
import { Signer } from "../../src/shared/signature.ts";
import { startConsole } from "../doubles/consoles/start-console.ts";
import { fingerprint, MINUTE, startBeside } from "../doubles/mirror-journey.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { record } from "../doubles/records.ts";
import { until } from "../doubles/until.ts";
import { Partition } from "../shared/partition.ts";
import { emptyStore, missingStore } from "../shared/redis.ts";
import { linesIn } from "../usage/journal/journal-under-test.ts";

const skip = missingStore() ?? false;

t.test("a program that writes to the store ends no alarm, unless it has the secret", { skip }, async (t) => {
  const clock = movableClock();
  // It begins at noon, so that no day ends during the test.
  clock.pass((36 * 60 * MINUTE - (clock.now() % (24 * 60 * MINUTE))) % (24 * 60 * MINUTE));
  const store = await emptyStore();
  const partition = await Partition.start(t, store.port);
  partition.storeAhead = clock.now() - Date.now();
  const pass = (milliseconds: number) => {
    clock.pass(milliseconds);
    partition.storeAhead += milliseconds;
  };
  const secret = randomBytes(32).toString("hex");
  const settings = (more: string) => ({
    more: [
      `shared: { store: { url: "redis://127.0.0.1:${partition.port}", username: ${store.username}, password: ${store.password} }, machine: laptop, timezone: UTC${more} }`,
    ],
  });
  const console = await startConsole(t, "sub2api", { now: clock.now });
  const journey = await startBeside(t, console, clock, settings(""));
  const key = fingerprint(journey.codex.key);

  /** Reads the console and compares, until the rows are as expected. */
  async function compares(expected: Partial<MirrorReport["rows"]>, what: string): Promise<void> {
    let rows: Partial<MirrorReport["rows"]> = {};
    await until(what, async () => {
      await journey.sync();
      rows = (await journey.mirror()).rows;
      return Object.entries(expected).every(([name, count]) => rows[name as keyof typeof rows] === count);
    }).catch((error) => t.comment(String(error)));
    t.match(rows, expected, what);
  }

  /** The ids of the rows that raise an alarm. */
  async function foreignIds(): Promise<string[]> {
    return (await journey.diff()).flatMap(({ verdict, row }) =>
      verdict === "foreign" && row?.request_id ? [row.request_id] : [],
    );
  }

  /** Lists a machine in the store, as if it had the key and had published nothing since it joined. */
  async function invent(id: string, name: string, more: object = {}): Promise<void> {
    const generation = await store.admin(["HGET", "keybearer:generation", "id"]);
    const machine = { name, connection: "one", seen: Date.now(), generation, keys: [key], ...more };
    await store.admin(["HSET", "keybearer:machines", id, JSON.stringify(machine)]);
  }

  let published = 0;
  /** Adds a record to its stream that has the gateway's id of a row. */
  async function publish(
    machine: string,
    requestId: string,
    sign: (text: string) => string,
  ): Promise<string> {
    published += 1;
    const gateway_ids = { "x-client-request-id": requestId };
    const tokens = { input_tokens: 40, cache_read_tokens: 0, cache_write_tokens: 0, output_tokens: 9 };
    const one = record(published, { started_at: clock.now() - 2 * MINUTE, key, gateway_ids, ...tokens });
    const text = textOfRecord(one, 0);
    const signature = sign(text);
    const fields = ["record", text, ...(signature === "" ? [] : ["signature", signature])];
    return String(await store.admin(["XADD", `keybearer:records:${machine}`, "*", ...fields]));
  }

  /** The other machines are read, as far as the store has them. */
  async function exchange(machines: number, records: number): Promise<void> {
    await until("the laptop knows what is in the store", async () => {
      pass(10_000);
      const { shared } = await journey.status();
      const siblings = linesIn(join(journey.paths.state, "usage")).filter(({ kind }) => kind === "sibling");
      return shared?.machines.length === machines && siblings.length >= records;
    });
  }

  await journey.idle();
  await until("it is connected", async () => (await journey.status()).shared?.state === "connected");
  await journey.ask();
  // Console rows have whole seconds, and one from before the first second with the key is no theft.
  pass(MINUTE);
  journey.elsewhere({ model: "stolen" });
  pass(MINUTE);
  await compares({ foreign_certain: 1, by_id: 1 }, "a thief is found");
  const [stolen = ""] = await foreignIds();

  const attic = "00000000000000aa";
  const entry = await publish(attic, stolen, () => "");
  await invent(attic, "attic", { entry, published: Date.now() + partition.storeAhead });
  await exchange(2, 1);
  await compares({ foreign_certain: 1, foreign_suspected: 0, by_id: 1 }, "its alarm stands");

  await invent("00000000000000bb", "cellar");
  await exchange(3, 1);
  await compares({ foreign_certain: 1, unwatched: 0 }, "also if a machine may have more to say");
  journey.elsewhere({ model: "stolen-again" });
  pass(MINUTE);
  await compares({ foreign_certain: 1, foreign_suspected: 1, unwatched: 0 }, "nothing hides a new row");
  t.match((await journey.mirror()).alarms, [
    { certain: true },
    { certain: false, reason: /not signed \(shared\.secret\): cellar has this key/ },
  ]);
  const doubts = sharedFindings((await journey.status()).shared, clock.now()).filter(
    ({ level }) => level === "warning",
  );
  t.match(doubts.at(-1), {
    what: /do not sign .* stays a suspicion/,
    next: /shared\.secret .* openssl rand -hex 32/,
  });

  await journey.edit(journey.config(settings(`, secret: ${secret}`)));
  await exchange(3, 1);
  const signer = Signer.of(new Secret(secret), "keybearer");
  if (signer === null) throw new Error("the secret is too short");
  await compares({ foreign_certain: 1, foreign_suspected: 1, by_id: 1 }, "a secret alone changes nothing");
  const named = sharedFindings((await journey.status()).shared, clock.now()).map(({ what }) => what);
  t.match(named.join("\n"), /do not sign their records: (attic, cellar|cellar, attic)\./);

  // The signature of another machine's record, or of another text, is none.
  await publish(attic, stolen, (text) => signer.sign("record", "00000000000000bb", text));
  await publish(attic, stolen, (text) => signer.sign("record", attic, `${text} `));
  await exchange(3, 3);
  await compares({ foreign_certain: 1, by_id: 1 }, "nothing changes");

  const last = await publish(attic, stolen, (text) => signer.sign("record", attic, text));
  const statement = JSON.stringify({ name: "attic", published: clock.now(), keys: [key] });
  const signature = signer.sign("presence", attic, statement);
  await invent(attic, "someone else", { entry: last, statement, signature, keys: [] });
  await exchange(3, 4);
  await until("the laptop believes what the attic signed, and only that", async () => {
    pass(10_000);
    const { machines = [] } = (await journey.status()).shared ?? {};
    return machines.some(({ name, signature }) => name === "attic" && signature === "valid");
  });
  await compares({ foreign_certain: 0, foreign_suspected: 1, by_id: 2 }, "its own record matches the row");
  t.notMatch(`${journey.logText()}${await store.dump()}`, secret);
});
