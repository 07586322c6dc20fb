import { spawnSync } from "node:child_process";
import t from "tap";
import { bareEnv, builtProgram, newHome, saveConfig, startProgram } from "../doubles/command.ts";

/** A network without any address: the loopback device is down. It needs no root. */
const NO_ADDRESSES = ["--user", "--map-root-user", "--net"];
const skip =
  spawnSync("unshare", [...NO_ADDRESSES, "true"]).status !== 0 &&
  "this machine does not let users make a network of their own";

t.test("[::1] on a machine without IPv6 is not reported as a taken port", { skip }, async (t) => {
  const home = await newHome(t);
  await saveConfig(
    home,
    'listen: "[::1]:0"\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: sk-0123456789abcdef } }\n',
  );
  const program = [...NO_ADDRESSES, process.execPath, builtProgram(), "run"];
  const { code, stderr } = await startProgram(t, "unshare", program, bareEnv(home)).ended;
  t.equal(code, 78);
  t.match(stderr, "this machine has no IPv6 → write 127.0.0.1");
});
