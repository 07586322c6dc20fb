import t from "tap";
import { Shutdown } from "../../src/daemon/shutdown.ts";
import { quietLog } from "../doubles/quiet-log.ts";

t.test("every step runs, the newest first, also after one that throws", async (t) => {
  const lines: string[] = [];
  const ran: string[] = [];
  const shutdown = new Shutdown(quietLog(lines));
  shutdown.add("release the lock", () => ran.push("lock"));
  shutdown.add("close the log", () => {
    throw new Error("the disk is gone");
  });
  shutdown.add("finish requests", () => Promise.reject(new Error("no")));
  shutdown.add("stop the dashboard", () => ran.push("dashboard"));
  await shutdown.run();
  t.same(ran, ["dashboard", "lock"]);
  t.match(lines.join(""), /could not finish requests[\s\S]*the disk is gone.*could not close the log/);
});

t.test("a step that never ends is given up and named, and the next ones run", async (t) => {
  const lines: string[] = [];
  const ran: string[] = [];
  const shutdown = new Shutdown(quietLog(lines));
  shutdown.add("release the lock", () => ran.push("lock"));
  shutdown.add("finish requests", () => new Promise(() => {}), 10);
  await shutdown.run();
  t.same(ran, ["lock"]);
  t.match(lines.join(""), /could not finish requests within 0\.01 s/);
});

t.test("a second run does nothing", async (t) => {
  let times = 0;
  const shutdown = new Shutdown(quietLog());
  shutdown.add("count", () => {
    times += 1;
  });
  await shutdown.run();
  await shutdown.run();
  t.equal(times, 1);
});
