import type { CandidateName } from "../candidates/candidate.ts";
import { LATENCY_LOAD, RATIO_LOAD, RATIO_STREAMS } from "../plan.ts";
import type { Measured } from "./result.ts";
import { differences, quotients, type Spread, spread } from "./statistics.ts";

/** In this order, under these names, whatever else changes; null where the other one is not to be had here. */
export const RATIO_NAMES = [
  "rps_vs_http_proxy_3",
  "rps_vs_portkey",
  "rps_vs_nginx",
  "added_p50_ms",
  "event_delay_p99_vs_http_proxy_3",
  "rss_idle_vs_node",
  "startup_vs_node",
] as const;

export type RatioName = (typeof RATIO_NAMES)[number];
export type Ratios = Readonly<Record<RatioName, Spread | null>>;

/** What keybearer must hold, everything on. nginx is the physical neighbourhood: nobody promises to reach it. */
export const TARGETS: Readonly<Partial<Record<RatioName, { atLeast: number } | { atMost: number }>>> = {
  rps_vs_http_proxy_3: { atLeast: 0.75 },
  rps_vs_portkey: { atLeast: 6 },
  added_p50_ms: { atMost: 0.15 },
  event_delay_p99_vs_http_proxy_3: { atMost: 1.5 },
  rss_idle_vs_node: { atMost: 1.6 },
  startup_vs_node: { atMost: 8 },
};

export function ratiosOf(measured: Measured): Ratios {
  const load = (name: CandidateName, { connections, body }: { connections: number; body: string }) =>
    measured.loads.find(
      (one) => one.candidate === name && one.connections === connections && one.body === body,
    )?.rounds ?? [];
  const rps = (name: CandidateName) => load(name, RATIO_LOAD).map((round) => round.rps);
  const p50 = (name: CandidateName) => load(name, LATENCY_LOAD).map((round) => round.p50Ms);
  const delay = (name: CandidateName) =>
    measured.streams
      .find((one) => one.candidate === name && one.streams === RATIO_STREAMS)
      ?.rounds.map((round) => round.delayP99Ms) ?? [];
  const idle = (name: CandidateName) =>
    measured.idle.filter((one) => one.candidate === name).map((one) => one.rssBytes);
  const start = (name: string) => measured.starts.find((one) => one.candidate === name)?.rounds ?? [];
  return {
    rps_vs_http_proxy_3: spread(quotients(rps("keybearer"), rps("http-proxy-3"))),
    rps_vs_portkey: spread(quotients(rps("keybearer"), rps("portkey"))),
    rps_vs_nginx: spread(quotients(rps("keybearer"), rps("nginx"))),
    added_p50_ms: spread(differences(p50("keybearer"), p50("http-proxy-3"))),
    event_delay_p99_vs_http_proxy_3: spread(quotients(delay("keybearer"), delay("http-proxy-3"))),
    rss_idle_vs_node: spread(quotients(idle("keybearer"), idle("node"))),
    startup_vs_node: spread(quotients(start("keybearer"), start("node -e 0"))),
  };
}

/** null: nothing was promised of it, or it was not measured. */
export function isMet(name: RatioName, value: Spread | null): boolean | null {
  const target = TARGETS[name];
  if (target === undefined || value === null) return null;
  return "atLeast" in target ? value.median >= target.atLeast : value.median <= target.atMost;
}

/** Beyond this, two runs of one machine may disagree, and the table says so. */
const AGREEMENT = 0.15;

export function isWide({ median, least, most }: Spread): boolean {
  return most - least > 2 * AGREEMENT * Math.abs(median);
}
