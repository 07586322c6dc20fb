import t from "tap";
import { command, newHome, startServing } from "../doubles/command.ts";

t.test("stop ends a daemon that was started by hand, and says when there is none", async (t) => {
  const home = await newHome(t);
  const daemon = await startServing(t, home);
  const stopped = await command(t, home, ["stop"]);
  t.match(stopped, { code: 0, stdout: `keybearer is stopped, it was pid ${daemon.pid}\n` });
  t.match(await daemon.ended, { code: 0, signal: null });
  t.match(await command(t, home, ["stop"]), { code: 1, stderr: /not running/ });
});
