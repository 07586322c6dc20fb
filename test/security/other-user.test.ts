import { spawn } from "node:child_process";
import { once } from "node:events";
import t, { type Test } from "tap";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";

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

t.test("silent connections of another user do not lock tools out", { skip }, async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  const code = `
    import { connect } from "node:net";
    const sockets = [];
    let closed = 0;
    for (let n = 0; n < 1100; n += 1) {
      const socket = connect(Number(process.argv[1]), "127.0.0.1");
      socket.on("error", () => {});
      socket.on("close", () => { closed += 1; });
      sockets.push(socket);
    }
    setInterval(() => {
      if (closed < 1000) return;
      console.log("closed");
      process.exit();
    }, 20);`;
  const silent = asOtherUser(t, code, String(one.port));
  t.equal(await silent, "closed\n", "nearly all of them are cut");
  const headers = { authorization: `Bearer ${one.token}` };
  t.equal((await fetch(`${one.url}/v1/models`, { headers })).status, 200);
});
