import t from "tap";
import { idleTime } from "../../src/proxy/kept-connection.ts";

t.test("a connection rests for as long as its server waits, less a second", async (t) => {
  t.equal(idleTime("timeout=5"), 4000);
  t.equal(idleTime("timeout=20, max=100"), 19_000);
  t.equal(idleTime("timeout=1"), 0, "not at all");
  t.ok(idleTime("timeout=0") < 0);
});

t.test("a server that promises more is not taken at its word", async (t) => {
  t.equal(idleTime("timeout=3600"), 30_000);
  t.equal(idleTime(`timeout=${"9".repeat(400)}`), 30_000);
});

t.test("where nothing is announced it rests for a moment only", async (t) => {
  for (const said of [undefined, "", "max=5", "timeout=soon", "timeout=-1"])
    t.equal(idleTime(said), 4000, String(said));
});
