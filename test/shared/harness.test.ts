import { createClient } from "@redis/client";
import t, { type Test } from "tap";
import { until } from "../doubles/until.ts";
import { Partition } from "./partition.ts";
import { emptyStore, missingStore, StoreServer } from "./redis.ts";

/* The test world itself: what the tests of several machines rely on. */

const skip = missingStore() ?? false;

/** A client as the documented user, which fails at once if the connection ends. */
async function connected(t: Test, store: StoreServer, port = store.port) {
  const client = createClient({
    socket: { host: "127.0.0.1", port, reconnectStrategy: false },
    username: store.username,
    password: store.password,
  });
  client.on("error", () => {});
  await client.connect();
  t.teardown(() => client.destroy());
  return client;
}

t.test("the documented user has its prefix, and nothing else", { skip }, async (t) => {
  const store = await emptyStore();
  const client = await connected(t, store);
  const refused = [
    ["GET", "keybearer:key"],
    ["EVAL", "return redis.call('HSET', KEYS[1], 'a', '1')", "1", "other:key"],
    ["HSET", "other:key", "a", "1"],
    ["KEYS", "*"],
    ["FLUSHALL"],
    ["CONFIG", "SET", "appendonly", "no"],
    ["ACL", "LIST"],
    ["MONITOR"],
    ["SHUTDOWN"],
  ];
  for (const command of refused)
    await t.rejects(client.sendCommand(command), /NOPERM|No permissions|ACL failure/, command.join(" "));
  const inside = ["EVAL", "return redis.call('HSET', KEYS[1], 'a', '1')", "1", "keybearer:key"];
  t.equal(await client.sendCommand(inside), 1);
});

t.test("a killed store keeps its data and its user, or only its user", { skip }, async (t) => {
  for (const isPersistent of [true, false]) {
    const store = await StoreServer.start(t, { isPersistent });
    await (await connected(t, store)).sendCommand(["HSET", "keybearer:kept", "a", "yes"]);
    t.match(await store.dump(), /^keybearer:kept hash .*"yes"/m);
    await store.kill();
    await store.restart();
    await connected(t, store);
    t.equal(/keybearer:kept/.test(await store.dump()), isPersistent);
  }
});

t.test("the documented certificate and configuration make a store with TLS", { skip }, async (t) => {
  const store = await StoreServer.start(t, { hasTls: true });
  t.equal(await store.admin(["PING"]), "PONG");
  await t.rejects(connected(t, store), "and no other is accepted");
});

t.test("a partition cuts, swallows, stalls and delays", { skip }, async (t) => {
  const store = await emptyStore();
  const partition = await Partition.start(t, store.port);
  const add = ["XADD", "keybearer:n", "*", "a", "1"];
  const value = async () => Number(await store.admin(["XLEN", "keybearer:n"]));

  const first = await connected(t, store, partition.port);
  await first.sendCommand(add);
  t.equal(await value(), 1, "it passes");

  partition.set("stall");
  const stalled = first.sendCommand(add);
  t.equal(await value(), 1, "a stalled command does not arrive");
  partition.set("pass");
  await stalled;
  t.equal(await value(), 2, "it arrives later, on the same connection");

  partition.set("pass", 30);
  await first.sendCommand(add);
  t.equal(await value(), 3, "a slow connection still works");

  partition.set("cut");
  await until("the connection is cut", () => !first.isOpen);
  await t.rejects(connected(t, store, partition.port), "and no other is accepted");

  partition.set("pass");
  const second = await connected(t, store, partition.port);
  partition.set("black-hole");
  const swallowed = second.sendCommand(add);
  swallowed.catch(() => {});
  t.equal(await value(), 3, "a swallowed command does not arrive");
  partition.set("pass");
  await t.rejects(swallowed, "it is lost with its connection");
  t.equal(await value(), 3);

  const third = await connected(t, store, partition.port);
  partition.set("stall");
  const last = third.sendCommand(add);
  last.catch(() => {});
  await t.resolves(store.admin(["PING"]));
  third.destroy();
  partition.set("pass");
  await until("what a dead machine sent still arrives", async () => (await value()) === 4);
});
