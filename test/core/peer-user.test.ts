import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import t from "tap";
import { findUser, PeerLookup } from "../../src/core/peer-user.ts";

/** More than one page of the kernel's table. */
const CONNECTIONS = 60;
const SUPPORTED = {
  skip: new PeerLookup().supported ? false : "this system does not show the user of a connection",
};

t.test("the user of a connection is read from the kernel's table", async (t) => {
  const head =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
  const row = (from: string, to: string, uid: number, inode: number) =>
    `   1: ${from} ${to} 01 00000000:00000000 00:00000000 00000000 ${String(uid).padStart(5)}        0 ${inode} 1 0000000000000000 20 4 30 10 -1\n`;
  const ends = { address: "127.0.0.1", port: 0xd2ec, toAddress: "127.0.0.1", toPort: 5398 };
  const [theirs, ours] = ["0100007F:D2EC", "0100007F:1516"];
  t.equal(findUser(head + row(ours, theirs, 1, 9) + row(theirs, ours, 1000, 8), ends), 1000, "their own end");
  t.equal(findUser(head + row(ours, theirs, 1, 9), ends), null, "not ours");
  t.equal(findUser(head + row(theirs, ours, 0, 0), ends), null, "no process holds it: that is not root's");
  const mapped = (end: string) => `0000000000000000FFFF0000${end}`;
  t.equal(findUser(row(mapped(theirs), mapped(ours), 7, 8), ends), 7, "an IPv6 socket that calls IPv4");
  const one = "00000000000000000000000001000000";
  const six = { ...ends, address: "::1", toAddress: "::1" };
  t.equal(findUser(row(`${one}:D2EC`, `${one}:1516`, 65534, 8), six), 65534);
  t.equal(findUser("", six), null);
});

t.test("the users of many connections that open at once are found together", SUPPORTED, async (t) => {
  const peers = new PeerLookup();
  const server = createServer().listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const accepted: Socket[] = [];
  const all = new Promise<void>((resolve) => {
    server.on("connection", (socket) => {
      t.teardown(() => socket.destroy());
      if (accepted.push(socket) === CONNECTIONS) resolve();
    });
  });
  for (let number = 0; number < CONNECTIONS; number += 1) {
    const client = connect(port, "127.0.0.1");
    t.teardown(() => client.destroy());
  }
  await all;
  const found = await Promise.all(accepted.map((socket) => peers.of(socket)));
  t.same(new Set(found), new Set(["ours"]));
});

t.test("a connection that its program has closed has no user", SUPPORTED, async (t) => {
  const peers = new PeerLookup();
  const server = createServer({ allowHalfOpen: true }).listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const [socket] = (await once(server, "connection")) as [Socket];
  t.teardown(() => socket.destroy());
  client.resetAndDestroy();
  await once(client, "close");
  t.equal(await peers.of(socket), "gone");
});
