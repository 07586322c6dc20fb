import type { Protocol } from "./prompts.ts";

/** How much is measured. Every measure is a fixed number of requests, so that a run ends. */
export interface Plan {
  readonly warmUp: {
    readonly smallRequests: number;
    readonly largeRequests: number;
    readonly streams: number;
  };
  readonly requestRounds: number;
  readonly requests: readonly RequestSlice[];
  readonly streamRounds: number;
  readonly streams: readonly StreamSlice[];
}

/** One load with many connections, for CPU per request. */
export interface RequestSlice {
  readonly promptKb: number;
  readonly connections: number;
  readonly requests: number;
}

export interface StreamSlice {
  readonly protocol: Protocol;
  readonly clients: number;
  readonly streamsPerClient: number;
  /** 0: all events as fast as the upstream can write them. */
  readonly paceMs: number;
}

export const EVENTS_PER_STREAM = 300;
export const STREAM_PROMPT_KB = 100;

export const QUICK: Plan = {
  warmUp: { smallRequests: 4000, largeRequests: 400, streams: 32 },
  requestRounds: 3,
  requests: [
    { promptKb: 1, connections: 16, requests: 3000 },
    { promptKb: 20, connections: 8, requests: 2000 },
    { promptKb: 100, connections: 8, requests: 800 },
    { promptKb: 500, connections: 4, requests: 150 },
  ],
  streamRounds: 2,
  streams: [
    { protocol: "chat", clients: 1, streamsPerClient: 1, paceMs: 5 },
    { protocol: "chat", clients: 32, streamsPerClient: 1, paceMs: 10 },
    { protocol: "chat", clients: 32, streamsPerClient: 2, paceMs: 0 },
  ],
};

export const FULL: Plan = { ...QUICK, requestRounds: 5, streamRounds: 5 };
