import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Test } from "tap";
import { Actions } from "../../src/control/actions.ts";
import type { Controls } from "../../src/control/routes.ts";
import { ControlServer } from "../../src/control/server.ts";
import { createTail } from "../../src/control/tail.ts";
import { systemClock } from "../../src/core/clock.ts";
import { NO_MIRROR } from "./no-mirror.ts";
import { NO_PROBER } from "./no-prober.ts";
import { NO_USAGE } from "./no-usage.ts";
import { quietLog } from "./quiet-log.ts";

/** The control socket of a daemon that does nothing but what is given. */
export async function serveControls(
  t: Test,
  home: string,
  given: Partial<Controls> = {},
): Promise<ControlServer> {
  mkdirSync(join(home, "run"), { mode: 0o700 });
  const server = new ControlServer(join(home, "run", "control.sock"), quietLog());
  t.equal(await server.listen(), "listening");
  t.teardown(() => server.close());
  server.serve({
    status: () => Promise.reject(new Error("not here")),
    held: () => null,
    trust: async () => ({ granted: [], problems: [] }),
    lift: () => null,
    cut: () => null,
    open: () => Promise.reject(new Error("there is no dashboard")),
    usage: NO_USAGE,
    actions: new Actions(systemClock),
    tail: createTail(),
    mirror: NO_MIRROR,
    prober: NO_PROBER,
    ...given,
  });
  return server;
}
