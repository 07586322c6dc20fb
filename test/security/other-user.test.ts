import { spawn } from "node:child_process";
import { once } from "node:events";
import t, { type Test } from "tap";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

/** What another user of this machine can try over loopback. */
const OTHER_USER = 54_321;
const skip =
  process.platform !== "linux" || process.getuid?.() !== 0
    ? "only root on Linux can start a program of another user"
    : false;

/** Runs a program of another user, with this text as its code, to its end. */
async function asOtherUser(t: Test, code: string, ...args: string[]): Promise<string> {
  const child = spawn(process.execPath, ["--input-type=module", "-e", code, ...args], {
    uid: OTHER_USER,
    gid: OTHER_USER,
    cwd: "/",
    env: {},
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  let printed = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    printed += text;
  });
  await once(child, "close");
  return printed;
}

t.test("another user who learned a token cannot spend with it", { skip }, async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  const code = `
    const [url, token] = process.argv.slice(1);
    for (const init of [{}, { method: "POST", body: "{}" }]) {
      const answer = await fetch(url + "/v1/models", { ...init, headers: { authorization: "Bearer " + token } });
      console.log(answer.status, answer.headers.get("x-keybearer-refusal"), await answer.text());
    }`;
  const printed = await asOtherUser(t, code, one.url, one.token);
  t.match(printed, /^403 other-user .*another user of this machine.*\n403 other-user /);
  t.equal(gateway.calls.length, 0, "nothing reached the gateway");
  const headers = { authorization: `Bearer ${one.token}` };
  t.equal((await fetch(`${one.url}/v1/models`, { headers })).status, 200, "its own user is served");
});

t.test(
  "of another user's connections all but a few are cut, and those get the reason",
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

t.test("connections that are closed before they are looked up are cut here as well", { skip }, async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin, { gateway: ["websockets: true"] });
  // More than the places there are. An upgrade leaves Node's server, which then looks after it no more.
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
  // Those that are still being looked up have their places until then.
  await until("there are places again", () =>
    fetch(`${one.url}/v1/models`, { headers }).then(
      ({ status }) => status === 200,
      () => false,
    ),
  );
});
