import { existsSync, readdirSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import t from "tap";
import { isDaemonListening } from "../../src/control/client.ts";
import { ControlServer } from "../../src/control/server.ts";
import { StateLock } from "../../src/daemon/state-lock.ts";
import { newHome } from "../doubles/command.ts";
import { quietLog } from "../doubles/quiet-log.ts";

t.test("the socket is 0600, and a second daemon does not take it", async (t) => {
  const path = join(await newHome(t), "control.sock");
  const first = new ControlServer(path, quietLog());
  t.equal(await first.listen(), "listening");
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.equal(await new ControlServer(path, quietLog()).listen(), "already running");
  await first.close();
  t.notOk(existsSync(path));
});

t.test("a path that is too long for the system is reported", async (t) => {
  const path = join(await newHome(t), "x".repeat(110));
  t.equal(await new ControlServer(path, quietLog()).listen(), "path too long");
});

t.test("a socket that vanished, with its folder or without, is created again", async (t) => {
  const path = join(await newHome(t), "run", "control.sock");
  const lines: string[] = [];
  const server = new ControlServer(path, quietLog(lines));
  await server.listen();
  await server.check();
  t.same(lines, [], "nothing is logged while it is there");
  for (const gone of [path, dirname(path)]) {
    rmSync(gone, { recursive: true });
    await server.check();
    t.equal(await isDaemonListening(path), true);
    t.equal(statSync(path).mode & 0o777, 0o600);
    t.match(lines.pop(), /had been removed and was created again/);
  }
  await server.close();
  t.notOk(existsSync(path));
});

t.test("the state lock has one holder at a time, and its file is 0600", async (t) => {
  const file = join(await newHome(t), "lock.db");
  const lock = StateLock.take(file);
  t.ok(lock);
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.same(readdirSync(dirname(file)), ["lock.db"], "and there is no other");
  t.equal(StateLock.take(file), null);
  t.equal(StateLock.take(file), null, "a failed attempt does not loosen it");
  lock?.release();
  const next = StateLock.take(file);
  t.ok(next, "released, it can be taken again");
  next?.release();
});
