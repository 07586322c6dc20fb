import t from "tap";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { asOtherUser, cannotBeOtherUser } from "../doubles/other-user.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

/* What another user of this machine can try over loopback. AUTH-13 in test/threats shows that a token does not help. */

const skip = cannotBeOtherUser();

t.test(
  "all but a few of another user's connections are cut, and those get the reason",
  { skip },
  async (t) => {
    const gateway = await startRawGateway(t, (call) => call.ok());
    const one = await startWithOneTool(t, gateway.origin);
    const code = `
    import { connect } from "node:net";
    const [port, host] = process.argv.slice(1);
    const open = new Set();
    const closed = () => {
      if (open.size !== 16) return;
      const [socket] = open;
      socket.once("data", (answer) => {
        console.log(String(answer));
        process.exit();
      });
      socket.write("GET /v1/models HTTP/1.1\\r\\nhost: " + host + "\\r\\n\\r\\n");
    };
    for (let n = 0; n < 100; n += 1) {
      const socket = connect(Number(port), "127.0.0.1");
      open.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        open.delete(socket);
        closed();
      });
    }`;
    const answer = await asOtherUser(t, code, String(one.port), one.host);
    t.match(answer, /^HTTP\/1\.1 403 /);
    t.match(answer, /x-keybearer-refusal: other-user/i);
    const headers = { authorization: `Bearer ${one.token}` };
    t.equal((await fetch(`${one.url}/v1/models`, { headers })).status, 200);
  },
);

longTest(
  t,
  "connections that another user closes before the lookup free their places",
  { skip },
  async (t) => {
    const gateway = await startRawGateway(t, (call) => call.ok());
    const one = await startWithOneTool(t, gateway.origin, { gateway: ["websockets: true"] });
    // More than there are places. Node's server no longer manages an upgraded connection.
    const code = `
    import { connect } from "node:net";
    import { once } from "node:events";
    const [port, host] = process.argv.slice(1);
    const head = "GET /v1/realtime HTTP/1.1\\r\\nhost: " + host + "\\r\\nconnection: upgrade\\r\\nupgrade: websocket\\r\\n" +
      "sec-websocket-version: 13\\r\\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n";
    for (let n = 0; n < 700; n += 1) {
      const socket = connect(Number(port), "127.0.0.1");
      socket.on("error", () => {});
      await once(socket, "connect");
      socket.write(head, () => socket.destroy());
      await once(socket, "close");
    }`;
    await asOtherUser(t, code, String(one.port), one.host);
    const headers = { authorization: `Bearer ${one.token}` };
    // A connection keeps its place until its lookup ends.
    await until("there are places again", () =>
      fetch(`${one.url}/v1/models`, { headers }).then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
  },
);
