import type { CandidateName } from "../candidates/candidate.ts";
import { LATENCY_LOAD, RATIO_LOAD, RATIO_STREAMS } from "../plan.ts";
import type { Measured } from "./result.ts";
import { neighbours, slicesOf } from "./slices.ts";
import { quotients, type Spread, spread } from "./statistics.ts";

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
  const slices = (name: CandidateName, load: typeof RATIO_LOAD | typeof LATENCY_LOAD) =>
    slicesOf(measured.loads, name, load);
  const rps = (name: CandidateName) =>
    spread(
      neighbours(
        slices("keybearer", RATIO_LOAD),
        slices(name, RATIO_LOAD),
        (our, their) => our.rps / their.rps,
      ),
    );
  // One p99 a round, then the median of the rounds' quotients. One over the events of all rounds together would be that of
  // the worst round: a single pause of the machine holds up more than one event of a hundred.
  const delay = (name: CandidateName) =>
    measured.streams
      .find((one) => one.candidate === name && one.streams === RATIO_STREAMS)
      ?.rounds.map((round) => round.delayP99Ms) ?? [];
  const idle = (name: CandidateName) =>
    measured.idle.filter((one) => one.candidate === name).map((one) => one.rssBytes);
  const start = (name: string) => measured.starts.find((one) => one.candidate === name)?.rounds ?? [];
  return {
    rps_vs_http_proxy_3: rps("http-proxy-3"),
    rps_vs_portkey: rps("portkey"),
    rps_vs_nginx: rps("nginx"),
    added_p50_ms: spread(
      neighbours(
        slices("keybearer", LATENCY_LOAD),
        slices("http-proxy-3", LATENCY_LOAD),
        (our, their) => our.p50Ms - their.p50Ms,
      ),
    ),
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
