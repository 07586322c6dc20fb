import type { CandidateName } from "./candidates/candidate.ts";
import type { BodySize } from "./upstream/bodies.ts";

/** How much is measured. Everything is bounded, by rounds, seconds or counts. */
export interface Plan {
  readonly rounds: number;
  /** Of each slice of a load. */
  readonly seconds: number;
  /** So many requests before anything counts, in so many loads at most. */
  readonly warmRequests: number;
  readonly warmParts: number;
  readonly loads: readonly LoadPlan[];
  readonly streams: readonly StreamPlan[];
  readonly streamRounds: number;
  readonly downloadRounds: number;
  readonly startRounds: number;
  /** Whose start and whose idleness are looked at; left out: everybody's. */
  readonly processesOf?: readonly CandidateName[];
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
  /** Whom keybearer is measured beside, as often as they are named; left out: everybody, once. */
  readonly rivals?: readonly CandidateName[];
}

export interface StreamPlan {
  readonly streams: number;
  readonly events: number;
  readonly only?: readonly CandidateName[];
  /** Who is measured once more in each round, as often as named. */
  readonly again?: readonly CandidateName[];
}

/** What the ratios are read off. */
export const RATIO_LOAD = { connections: 16, body: "small" } as const;
export const LATENCY_LOAD = { connections: 1, body: "small" } as const;
export const RATIO_STREAMS = 200;

/**
 * The same in both plans, because the ratio depends on it: the queue while streams are being opened is a larger share of
 * short streams. 200 of them are 4,800 events a round, 48 of which are later than the 99th of 100.
 */
const EVENTS = 25;

/** What a promise was made about is measured more often: single slices differ by a third and more on a small machine. */
const OFTEN: readonly CandidateName[] = [
  ...(["direct", "http-proxy-3", "nginx", "http-proxy-3", "httpxy"] as const),
  ...(["http-proxy-3", "portkey", "http-proxy-3"] as const),
];

/** Beside each other, and each of them first once: a pause of the machine decides on the 99th of 100 of a whole round. */
const AGAIN: readonly CandidateName[] = ["http-proxy-3", "keybearer", "keybearer", "http-proxy-3"];

export const FULL: Plan = {
  rounds: 5,
  seconds: 1,
  warmRequests: 40_000,
  warmParts: 20,
  loads: (["small", "large"] as const).flatMap((body) =>
    [1, 16, 64].map((connections) =>
      body === "small" && connections !== 64 ? { connections, body, rivals: OFTEN } : { connections, body },
    ),
  ),
  streams: [
    { streams: 1, events: EVENTS },
    { streams: 50, events: EVENTS },
    { streams: RATIO_STREAMS, events: EVENTS, again: AGAIN },
  ],
  streamRounds: 5,
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
  rounds: 1,
  warmRequests: 20_000,
  warmParts: 4,
  loads: [
    {
      ...RATIO_LOAD,
      rivals: ["http-proxy-3", "portkey", "http-proxy-3", "nginx", "http-proxy-3", "http-proxy-3"],
    },
    { ...LATENCY_LOAD, rivals: ["http-proxy-3", "http-proxy-3", "http-proxy-3"] },
  ],
  streams: [{ streams: RATIO_STREAMS, events: EVENTS, only: ["http-proxy-3", "keybearer"] }],
  streamRounds: 3,
  downloadRounds: 0,
  startRounds: 3,
  processesOf: ["node", "keybearer"],
  idleSeconds: 1,
  settleSeconds: 1,
  flatRequests: 0,
  reloadRounds: 0,
  records: 0,
  consoleRows: 0,
};
