import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import t from "tap";
import { Connections } from "../../src/core/connections.ts";
import { PeerLookup } from "../../src/core/peer-user.ts";

/** More than one page of the kernel's table. */
const CONNECTIONS = 60;
const SUPPORTED = {
  skip: new PeerLookup(new Connections()).supported
    ? false
    : "this system does not show the user of a connection",
};

t.test("the users of many connections that open at once are found together", SUPPORTED, async (t) => {
  const peers = new PeerLookup(new Connections());
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
  const peers = new PeerLookup(new Connections());
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
