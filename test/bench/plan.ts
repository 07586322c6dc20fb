import type { Protocol } from "./prompts.ts";

/** How much is measured. Every load is a fixed number of requests, so that every run ends. */
export interface Plan {
  /** Small requests to each candidate before anything counts, so that V8 compiles the code. */
  readonly warmUpRequests: number;
  readonly rounds: number;
  readonly requests: readonly RequestSlice[];
  readonly latency: readonly LatencySlice[];
  readonly streamRounds: number;
  readonly streams: readonly StreamSlice[];
  readonly delayRounds: number;
  readonly startRounds: number;
  /** Requests over which memory must stay flat; 0 leaves it out. */
  readonly flatRequests: number;
  /** Records and console rows for the usage log's own measures; 0 leaves them out. */
  readonly usageRecords: number;
  readonly consoleRows: number;
}

/** A load on several connections, for CPU per request. */
export interface RequestSlice {
  readonly promptKb: number;
  readonly connections: number;
  /** Every request opens a new connection. */
  readonly reconnect: boolean;
  readonly requests: number;
}

/** Requests one after the other on one connection, for added latency. */
export interface LatencySlice {
  readonly promptKb: number;
  readonly requests: number;
}

/** Streams of 300 events, each for a prompt of 100 KB. */
export interface StreamSlice {
  readonly protocol: Protocol;
  readonly clients: number;
  readonly streamsPerClient: number;
  /** Time between two events; 0 sends all events as fast as the upstream can. */
  readonly paceMs: number;
}

export const EVENTS_PER_STREAM = 300;
export const STREAM_PROMPT_KB = 100;

/**
 * The pace of 200 clients leaves the machine's two cores half idle with the slowest proxy. Faster, and lateness is the length
 * of a queue that depends on the hour.
 */
const ONE_PACED: StreamSlice = { protocol: "chat", clients: 1, streamsPerClient: 1, paceMs: 5 };
const SOME_PACED: StreamSlice = { protocol: "chat", clients: 32, streamsPerClient: 1, paceMs: 8 };
const MANY_PACED: StreamSlice = { protocol: "chat", clients: 200, streamsPerClient: 1, paceMs: 30 };
const SOME_BURSTS: StreamSlice = { protocol: "chat", clients: 32, streamsPerClient: 4, paceMs: 0 };

export const FULL: Plan = {
  warmUpRequests: 8000,
  rounds: 5,
  requests: [
    { promptKb: 1, connections: 16, reconnect: false, requests: 2000 },
    { promptKb: 20, connections: 8, reconnect: false, requests: 1500 },
    { promptKb: 100, connections: 8, reconnect: false, requests: 600 },
    { promptKb: 500, connections: 4, reconnect: false, requests: 120 },
    { promptKb: 1, connections: 4, reconnect: true, requests: 300 },
  ],
  latency: [
    { promptKb: 1, requests: 600 },
    { promptKb: 20, requests: 500 },
    { promptKb: 100, requests: 300 },
    { promptKb: 500, requests: 100 },
  ],
  streamRounds: 3,
  streams: [
    ONE_PACED,
    SOME_PACED,
    MANY_PACED,
    { ...ONE_PACED, streamsPerClient: 20, paceMs: 0 },
    SOME_BURSTS,
    { ...MANY_PACED, paceMs: 0 },
    { ...SOME_PACED, protocol: "messages" },
  ],
  delayRounds: 5,
  startRounds: 5,
  flatRequests: 100_000,
  usageRecords: 1_000_000,
  consoleRows: 20_000,
};

/** What most targets need, in under a minute. */
export const QUICK: Plan = {
  warmUpRequests: 4000,
  rounds: 3,
  requests: [
    { promptKb: 1, connections: 16, reconnect: false, requests: 1200 },
    { promptKb: 20, connections: 8, reconnect: false, requests: 800 },
    { promptKb: 100, connections: 8, reconnect: false, requests: 300 },
    { promptKb: 500, connections: 4, reconnect: false, requests: 60 },
  ],
  latency: [
    { promptKb: 1, requests: 200 },
    { promptKb: 100, requests: 100 },
  ],
  streamRounds: 2,
  streams: [ONE_PACED, SOME_PACED, { ...SOME_BURSTS, streamsPerClient: 2 }],
  delayRounds: 0,
  startRounds: 1,
  flatRequests: 0,
  usageRecords: 0,
  consoleRows: 0,
};
