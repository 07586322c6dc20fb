import { SANDBOX } from "../config/schema.ts";
import { background } from "../core/background.ts";
import type { Logger } from "../core/log.ts";
import type { Mode } from "../core/paths.ts";
import type { Dashboard } from "../dashboard/dashboard.ts";
import type { Mirror } from "../mirror/mirror.ts";
import { type OpenState, ownersOf } from "./open-state.ts";
import type { SandboxSession } from "./sandbox-session.ts";
import type { Services } from "./services.ts";

interface FollowerDeps
  extends Pick<
      Services,
      | "reload"
      | "upstream"
      | "gatewayHealth"
      | "keyHealth"
      | "limiter"
      | "journal"
      | "shared"
      | "tokenUses"
      | "mirror"
      | "notifier"
      | "metrics"
      | "isSandbox"
    >,
    Pick<OpenState, "sandboxSession" | "processLookup" | "projects" | "peers"> {
  readonly mode: Mode;
  readonly dashboard: Dashboard;
  readonly log: Logger;
}

/** What a new configuration changes, beside the snapshot that every request takes. */
export function followChanges(deps: FollowerDeps): void {
  const { upstream, gatewayHealth, keyHealth, limiter, journal, shared, tokenUses, mirror } = deps;
  const { notifier, metrics } = deps;
  const { sandboxSession, processLookup, projects, peers, mode, dashboard, log } = deps;
  deps.reload.onChange((from, to) => {
    log.level = to.config.log.level;
    peers.serve(ownersOf(mode, to.config));
    // Not after a key was read again and is the same: that happens after each 401.
    if (from.config !== to.config) keyHealth.endPauses();
    const gateways = Object.values(to.config.gateways);
    upstream.agents.keepOnly(gateways);
    gatewayHealth.keepOnly(gateways);
    shared.change(to);
    const tools = Object.values(from.config.tools);
    if (from.config !== to.config)
      tokenUses.follow(tools.flatMap(({ tokens }) => tokens.map(({ hash }) => hash)));
    const renamed = limiter.change(to.config);
    if (renamed !== null) {
      keyHealth.rename(renamed);
      if (!journal.rename(renamed))
        log.error(
          renamed,
          "the usage log cannot be written, so the next start loses the counters of a renamed tool",
        );
    }
    // Its own key may change: that is no config.yaml.
    if (deps.isSandbox() && from.config !== to.config) endSandbox(sandboxSession, mirror, log);
    mirror.change(to);
    notifier.apply(to);
    background(metrics.applyConfig(), log, "applying the configuration to the metrics");
    background(dashboard.applyConfig(), log, "applying the configuration to the dashboard");
    if (to.processTools.length > 0) background(processLookup.prepare(), log, "preparing the process lookup");
    background(projects.apply(to.config), log, "preparing the lookup of projects");
  });
}

function endSandbox(sandboxSession: SandboxSession | null, mirror: Mirror, log: Logger): void {
  log.info("found a config.yaml, so the sandbox ends");
  if (sandboxSession !== null) background(sandboxSession.end(), log, "ending the sandbox");
  mirror.forget(SANDBOX);
}
