import { fork, spawnSync } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import t from "tap";

const PRINT = "JSON.stringify(process.env)";

t.test("a program that a test starts has exactly the environment the test gives it", async (t) => {
  const { stdout } = spawnSync(process.execPath, ["-p", PRINT], { env: { A: "1" }, encoding: "utf8" });
  t.strictSame(JSON.parse(stdout), { A: "1" });
});

t.test("a program that inherits the environment runs without tap's loaders", async (t) => {
  const { stdout } = spawnSync(process.execPath, ["-p", PRINT], { encoding: "utf8" });
  t.notMatch(JSON.parse(stdout), { NODE_OPTIONS: /./ });
  const file = join(
    t.testdir({ "says.mjs": "process.send([process.execArgv, process.env.NODE_OPTIONS ?? null]);" }),
    "says.mjs",
  );
  const [said] = await once(fork(file, { execArgv: [] }), "message");
  t.strictSame(said, [[], null]);
});
