import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Test } from "tap";
import type { Controls } from "../../src/control/routes.ts";
import { ControlServer } from "../../src/control/server.ts";
import { ActionLog } from "../../src/control/status.ts";
import { Tail } from "../../src/control/tail.ts";
import { systemClock } from "../../src/core/clock.ts";
import { failed } from "../../src/core/display.ts";
import { Refused } from "../../src/lifecycle/refused.ts";
import { NO_MIRROR } from "./no-mirror.ts";
import { NO_USAGE } from "./no-usage.ts";
import { snapshotOf } from "./parsed-config.ts";
import { quietLog } from "./quiet-log.ts";

const noConsole = () => Promise.reject(new Refused("there is no console"));

const NO_LIFECYCLE: Controls["lifecycle"] = {
  rotatable: noConsole,
  rotate: noConsole,
  create: noConsole,
  delete: noConsole,
  changeable: noConsole,
  setEnabled: noConsole,
  changeUnheld: noConsole,
};

const notLayered = () => Promise.reject(new Error("not here"));

/** The control socket of a daemon that does nothing but what is given. */
export async function serveControls(
  t: Test,
  home: string,
  given: Partial<Controls> = {},
  logLines: string[] = [],
): Promise<ControlServer> {
  mkdirSync(join(home, "run"), { mode: 0o700 });
  const log = quietLog(logLines);
  const server = new ControlServer(join(home, "run", "control.sock"), log);
  t.equal(await server.listen(), "listening");
  t.teardown(() => server.close());
  const snapshot = snapshotOf("gateway: https://gateway.example.com/v1\ntools: { codex: {} }\n");
  server.serve({
    log,
    status: () => Promise.reject(new Error("not here")),
    reload: { snapshot, takeKeys: async () => {} },
    keyring: {
      grant: async () => failed("nothing is held"),
      grantAll: async () => failed("nothing is held"),
      held: () => [],
    },
    layered: { read: notLayered, save: notLayered, forget: notLayered },
    copyIndex: notLayered,
    claim: async () => {},
    allow: () => null,
    release: async () => null,
    expectRename: () => null,
    cut: () => null,
    sessions: () => [],
    stopSession: () => null,
    liftSession: () => null,
    confirmations: { waiting: () => [], confirm: () => null, ended: () => null, leave: () => {} },
    browsers: { list: () => ({ browsers: [], why: null, code: null, next: null }), revoke: async () => null },
    open: () => Promise.reject(new Error("there is no dashboard")),
    usage: NO_USAGE,
    actions: new ActionLog(systemClock),
    tail: new Tail(),
    mirror: NO_MIRROR,
    prober: { models: async () => null, probes: async () => [] },
    lifecycle: NO_LIFECYCLE,
    events: { newest: () => [], mute: (subject, until) => ({ subject, until }), mutes: () => [] },
    notifier: { status: () => ({ channels: [], quiet: false, problem: null }), test: async () => [] },
    followEvents: () => {},
    ...given,
  });
  return server;
}
