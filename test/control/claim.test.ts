import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { claimSocket, isAnswered } from "../../src/control/socket.ts";

function folder(t: Test): string {
  const path = mkdtempSync(join(tmpdir(), "kb-"));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

function server(t: Test) {
  const made = createServer();
  t.teardown(() => new Promise<void>((resolve) => made.close(() => resolve())));
  return made;
}

t.test("whoever claims the socket owns it, and nobody else can open it", async (t) => {
  const path = join(folder(t), "control.sock");
  t.equal(await isAnswered(path), false);
  t.equal(await claimSocket(server(t), path), "claimed");
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.equal(await isAnswered(path), true);
  t.equal(await claimSocket(server(t), path), "already running");
  t.notOk(existsSync(`${path}.starting`), "no mark is left");
});

t.test("of many claims at the same moment exactly one wins, twenty times over", async (t) => {
  for (let round = 0; round < 20; round += 1) {
    const path = join(folder(t), "control.sock");
    const answers = await Promise.all(Array.from({ length: 8 }, () => claimSocket(server(t), path)));
    t.same(answers.toSorted(), [...Array(7).fill("already running"), "claimed"]);
  }
});

t.test("of many claims on a stale socket and a stale mark exactly one wins", async (t) => {
  const path = join(folder(t), "control.sock");
  await leaveStaleSocket(path);
  t.ok(existsSync(path));
  t.equal(await isAnswered(path), false);
  writeFileSync(`${path}.starting`, "");
  const longAgo = Date.now() / 1000 - 3600;
  utimesSync(`${path}.starting`, longAgo, longAgo);
  const answers = await Promise.all(Array.from({ length: 8 }, () => claimSocket(server(t), path)));
  t.same(answers.toSorted(), [...Array(7).fill("already running"), "claimed"]);
});

t.test("a path that the system cannot hold is told apart", async (t) => {
  t.equal(await claimSocket(server(t), join(folder(t), "x".repeat(110))), "path too long");
});

t.test("a folder in which no mark can be made is an error, not a wait without end", async (t) => {
  await t.rejects(claimSocket(createServer(), join(folder(t), "missing", "control.sock")), {
    code: "ENOENT",
  });
});

/** A socket file whose owner was killed. */
function leaveStaleSocket(path: string): Promise<void> {
  const listen = `require("net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`;
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ["-e", listen], { env: {}, stdio: "ignore" });
    child.once("error", reject);
    child.once("close", () => resolve());
  });
}
