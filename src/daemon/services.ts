import { statSync } from "node:fs";
import { SANDBOX } from "../config/schema.ts";
import { ActionLog } from "../control/status.ts";
import { Tail } from "../control/tail.ts";
import type { Clock } from "../core/clock.ts";
import type { Paths } from "../core/paths.ts";
import type { Secret } from "../core/secret.ts";
import { TickShape } from "../core/tick-shape.ts";
import { createTicker } from "../core/ticker.ts";
import { KeyCheck } from "../doctor/key-check.ts";
import { Prober } from "../doctor/tool-probes.ts";
import { otherModelAnswered } from "../events/conditions.ts";
import { Events } from "../events/events.ts";
import { EventWatch } from "../events/watch.ts";
import { Limiter } from "../limits/limiter.ts";
import { systemCalendar } from "../limits/windows.ts";
import { Metrics } from "../metrics/metrics.ts";
import { KeyCallBudgets } from "../mirror/consoles/key-calls.ts";
import { Mirror } from "../mirror/mirror.ts";
import { systemDesktop } from "../notify/desktop.ts";
import { Notifier } from "../notify/notifier.ts";
import { GatewayHealth } from "../proxy/gateway-health.ts";
import { KeyHealth } from "../proxy/key-health/key-health.ts";
import { OtherModels } from "../proxy/other-models.ts";
import { Outages } from "../proxy/outages.ts";
import { TokenUses } from "../proxy/token-uses.ts";
import { Upstream } from "../proxy/upstream.ts";
import { Shared } from "../shared/shared.ts";
import { createLifecycle } from "./key-lifecycle.ts";
import type { Keys } from "./keys.ts";
import type { OpenState } from "./open-state.ts";
import { Reload } from "./reload.ts";
import type { Shutdown } from "./shutdown.ts";
import { closeUsageServices, openUsageServices } from "./usage-services.ts";

interface ServiceOptions {
  readonly version: string;
  readonly paths: Paths;
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
}

export type Services = ReturnType<typeof createServices>;

/** What is built once: connections, configuration, usage, mirror, and what is known of gateways and keys. */
export function createServices(options: ServiceOptions, keys: Keys, opened: OpenState, shutdown: Shutdown) {
  const { version, paths, env, clock } = options;
  const { trust, keyring, vault, log } = keys;
  const { loaded, initial, settled, startWarnings, sandboxSession, peers } = opened;
  const ticker = createTicker();
  // Before everything that reports.
  const events = new Events({ file: paths.events, clock, log });
  shutdown.add("write events", () => events.stop());

  // Gateways, and what is known of the keys.
  const upstream = new Upstream(clock);
  const { agentFor } = upstream.agents;
  shutdown.add("close the connections to gateways", () => upstream.agents.close());
  const outages = new Outages(clock);
  const gatewayHealth = new GatewayHealth(clock);
  const keyHealth = new KeyHealth(clock);
  const keyCalls = new KeyCallBudgets(() => clock.now(), paths.keyCalls);
  shutdown.add("save when gateways were asked about keys", () => keyCalls.saved());
  const listedDetail = (gateway: string, key: Secret) => mirror.findKeyDetail(gateway, key);
  const keyCheck = new KeyCheck({ clock, keyCalls, agentFor, listedDetail });
  shutdown.add("stop asking about keys", () => keyCheck.stop());

  // The configuration in force.
  const fileWarnings = sandboxSession === null ? loaded.problems : [];
  const reload = new Reload({
    paths,
    clock,
    ticker,
    log,
    keyring,
    trust,
    initial: { loaded, snapshot: initial, fileWarnings, settled, startWarnings },
  });
  const snapshot = () => reload.snapshot;

  // What was used, and what may still be.
  const limiter = new Limiter(clock, systemCalendar);
  // Before the journal is read: it decides in which windows the requests of earlier runs count.
  const shared = new Shared({
    file: paths.shared,
    clock,
    ticker,
    log,
    limiter,
    snapshot,
    usage: () => usage,
    journalFolder: paths.usage,
    cut: (tool) => inFlight.cut(tool),
  });
  const usageServices = openUsageServices(paths, clock, ticker, log, limiter, () => snapshot().config);
  const { usage, journal, prices, inFlight, bodies } = usageServices;
  shutdown.add("close the usage log", () => closeUsageServices(usageServices));
  const otherModels = new OtherModels({
    file: paths.otherModels,
    log,
    prices,
    config: () => snapshot().config,
    report: (found) => events.report(otherModelAnswered(found)),
  });
  shutdown.add("write which models answered", () => otherModels.stop());
  shutdown.add("leave the shared store", () => shared.stop());

  // The consoles, and the keys that are changed through them.
  const mirror = new Mirror({
    clock,
    log,
    vault,
    snapshot,
    agentFor,
    keyCalls,
    database: usageServices.mirrorDatabase,
    usage: usageServices.mirrorUsage,
    lostRecords: usageServices.lostRecords,
    siblings: () => shared.siblings(),
    prices,
    // What a console knows better counts under the limits, too.
    onCorrected: (correction) => limiter.correct(correction.tool, correction),
    onJudged: (gateway, judged) => metrics.exporter?.countRows(gateway, judged),
    onAlarms: (alarms) => {
      automaticRotation.onAlarms(alarms);
      eventWatch.askSoon();
    },
    onAcknowledged: () => eventWatch.askSoon(),
    isChanging: (key) => lifecycle.isChanging(key),
  });
  // It writes into the usage log, so it stops before that is closed.
  shutdown.add("stop the mirror", () => mirror.stop());
  // Each start has a new sandbox, and none with a config.yaml: rows of an earlier one mean nothing.
  if (sandboxSession !== null || !Object.hasOwn(initial.config.gateways, SANDBOX)) mirror.forget(SANDBOX);
  const actions = new ActionLog(clock);
  const { lifecycle, automaticRotation, startLifecycle } = createLifecycle({
    paths,
    env,
    clock,
    log,
    ticker,
    keyring,
    trust,
    reload,
    mirror,
    shared,
    keyCheck,
    agentFor,
    inFlight,
    actions,
    sandboxSession,
    shutdown,
  });

  const metrics = new Metrics({
    version,
    log,
    peers,
    snapshot,
    limiter,
    shared,
    gatewayHealth,
    inFlight,
    mirror,
    otherModels,
  });

  // The callers, and who watches them.
  const tokenUses = new TokenUses({
    file: paths.tokenUses,
    clock,
    log,
    isKnown: (hash) => snapshot().toolByToken(hash) !== null,
    configChangedAt: () => statSync(paths.config, { throwIfNoEntry: false })?.mtimeMs ?? null,
  });
  // The sandbox has no config.yaml that could have lost a token.
  if (sandboxSession === null) tokenUses.followStart();
  shutdown.add("write when tokens were last used", () => tokenUses.stop());
  const isSandbox = () => sandboxSession?.serving() ?? false;
  const notifier = new Notifier(
    { file: paths.notifyQueue, clock, ticker, log, env, desktop: systemDesktop(env), isSandbox },
    initial,
  );
  shutdown.add("stop sending alerts", () => notifier.stop());
  const eventWatch = new EventWatch({
    paths,
    clock,
    ticker,
    log,
    events,
    reload,
    limiter,
    keyHealth,
    gatewayHealth,
    journal,
    usage,
    mirror,
  });
  const prober = new Prober({ clock, snapshot, agentFor, keyCheck, keyHealth, prices, usage });

  return {
    ticker,
    events,
    eventWatch,
    upstream,
    outages,
    gatewayHealth,
    keyHealth,
    reload,
    snapshot,
    isSandbox,
    limiter,
    shared,
    usage,
    journal,
    prices,
    inFlight,
    bodies,
    mirror,
    actions,
    otherModels,
    metrics,
    lifecycle,
    startLifecycle,
    tokenUses,
    prober,
    notifier,
    tail: new Tail(),
    // Held for as long as the daemon runs.
    tickShape: new TickShape(),
  };
}
