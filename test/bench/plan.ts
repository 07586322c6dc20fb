import type { CandidateName } from "./candidates/candidate.ts";
import type { BodySize } from "./upstream/bodies.ts";

/** How much is measured. Everything is bounded, by rounds, seconds or counts. */
export interface Plan {
  readonly rounds: number;
  /** Of each load. */
  readonly seconds: number;
  /** So many requests before anything counts, in so many loads at most. */
  readonly warmRequests: number;
  readonly warmParts: number;
  readonly loads: readonly LoadPlan[];
  readonly streams: readonly StreamPlan[];
  readonly streamRounds: number;
  readonly downloadRounds: number;
  readonly startRounds: number;
  /** How long an idle process is watched, and how long it is left alone before. */
  readonly idleSeconds: number;
  readonly settleSeconds: number;
  /** Requests over which memory must stay flat; 0: not looked at. */
  readonly flatRequests: number;
  readonly reloadRounds: number;
  readonly toolsInReload: number;
  /** Sizes of what is measured of the usage log and the mirror; 0: not measured. */
  readonly records: number;
  readonly consoleRows: number;
}

export interface LoadPlan {
  readonly connections: number;
  readonly body: BodySize;
  /** Left out: every candidate. */
  readonly only?: readonly CandidateName[];
}

export interface StreamPlan {
  readonly streams: number;
  readonly events: number;
  readonly only?: readonly CandidateName[];
}

/** What the ratios are read off. */
export const RATIO_LOAD = { connections: 16, body: "small" } as const;
export const LATENCY_LOAD = { connections: 1, body: "small" } as const;
export const RATIO_STREAMS = 200;

export const FULL: Plan = {
  rounds: 5,
  seconds: 2,
  warmRequests: 40_000,
  warmParts: 10,
  loads: (["small", "large"] as const).flatMap((body) =>
    [1, 16, 64].map((connections) => ({ connections, body })),
  ),
  streams: [1, 50, 200].map((streams) => ({ streams, events: 60 })),
  streamRounds: 3,
  downloadRounds: 5,
  startRounds: 10,
  idleSeconds: 30,
  settleSeconds: 5,
  flatRequests: 100_000,
  reloadRounds: 5,
  toolsInReload: 1000,
  records: 1_000_000,
  consoleRows: 20_000,
};

/** Only what the ratios need, and only whom they need. */
export const QUICK: Plan = {
  ...FULL,
  rounds: 3,
  seconds: 1,
  warmRequests: 3000,
  warmParts: 2,
  loads: [
    { ...RATIO_LOAD, only: ["nginx", "http-proxy-3", "keybearer", "portkey"] },
    { ...LATENCY_LOAD, only: ["http-proxy-3", "keybearer"] },
  ],
  streams: [{ streams: RATIO_STREAMS, events: 20, only: ["http-proxy-3", "keybearer"] }],
  streamRounds: 3,
  downloadRounds: 0,
  startRounds: 3,
  idleSeconds: 3,
  settleSeconds: 2,
  flatRequests: 0,
  reloadRounds: 0,
  records: 0,
  consoleRows: 0,
};
