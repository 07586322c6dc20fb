import { randomInt } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import t, { type Test } from "tap";
import { findPaths } from "../../src/core/paths.ts";
import { startDaemon } from "../../src/daemon/daemon.ts";
import { newHome, runProgram, saveConfig } from "../doubles/command.ts";

function config(port: number): string {
  return `listen: localhost:${port}\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: env:NOT_SET_HERE } }\n`;
}

t.test("a port taken on either address exits 69, names the owner and leaves nothing bound", async (t) => {
  for (const hosts of [["127.0.0.1"], ["::1"], ["127.0.0.1", "::1"]]) {
    const port = await take(t, hosts);
    if (port === null) {
      t.skip(`this machine has no ${hosts.join(" and ")}`, async () => {});
      continue;
    }
    const home = await newHome(t);
    await saveConfig(home, config(port));
    const paths = findPaths({ env: { KEYBEARER_HOME: home }, home });
    const failure = await startDaemon({ paths, env: {}, logTo: { write: () => {} } }).catch((error) => error);
    t.equal(failure.exitCode, 69, hosts.join(" and "));
    const { message } = failure;
    const address = hosts[0] === "::1" ? `[::1]:${port}` : `127.0.0.1:${port}`;
    t.ok(message.includes(`${address} is taken by `), message);
    t.match(message, /stop it, or change listen in config\.yaml/);
    // Where the system does not say who has the port, the message says "another program".
    t.match(message, new RegExp(`\\(pid ${process.pid}\\)|by another program`));
    t.notOk(existsSync(join(home, "run", "control.sock")), "the socket is given back");
    for (const free of ["127.0.0.1", "::1"].filter((host) => !hosts.includes(host))) {
      if ((await take(t, [free])) === null) continue;
      t.ok(await canBind(t, free, port), `${free} is not left bound`);
    }
  }
});

t.test("the program reports the taken port on stderr, and exits with 69", async (t) => {
  const port = await take(t, ["127.0.0.1"]);
  const home = await newHome(t);
  const file = join(home, "elsewhere.yaml");
  writeFileSync(file, config(port ?? 0), { mode: 0o600 });
  const { code, stdout, stderr } = await runProgram(t, home, ["run", "--config", file]);
  t.equal(code, 69);
  t.equal(stdout, "");
  t.match(stderr, `127.0.0.1:${port} is taken by `);
});

/** Listens on these addresses with one port that is free on both, or returns null where the machine lacks one. */
async function take(t: Test, hosts: readonly string[]): Promise<number | null> {
  for (const host of hosts) if (!(await canBind(t, host, 0))) return null;
  const port = await findFreePort();
  for (const host of hosts) t.ok(await canBind(t, host, port), `${host}:${port} was free`);
  return port;
}

/** Below those that the system chooses from: it could give another test the same port on the other address. */
async function findFreePort(): Promise<number> {
  const hosts = (await isFree("::1", 0)) ? ["127.0.0.1", "::1"] : ["127.0.0.1"];
  for (;;) {
    const port = randomInt(20_000, 30_000);
    const free: boolean[] = [];
    for (const host of hosts) free.push(await isFree(host, port));
    if (!free.includes(false)) return port;
  }
}

async function isFree(host: string, port: number): Promise<boolean> {
  const server = await bind(host, port);
  if (server === null) return false;
  await new Promise((resolve) => server.close(resolve));
  return true;
}

async function canBind(t: Test, host: string, port: number): Promise<boolean> {
  const server = await bind(host, port);
  if (server === null) return false;
  t.teardown(() => server.close());
  return true;
}

function bind(host: string, port: number): Promise<Server | null> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once("error", () => resolve(null));
    server.listen({ host, port, ipv6Only: host === "::1", exclusive: true }, () => resolve(server));
  });
}
