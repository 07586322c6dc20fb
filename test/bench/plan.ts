import type { Protocol } from "./prompts.ts";

/** How much is measured. Every load is a fixed number of requests, so that every run ends. */
export interface Plan {
  /** Small requests to each candidate before anything counts, so that V8 compiles the code. */
  readonly warmUpRequests: number;
  readonly rounds: number;
  readonly requests: readonly RequestLoad[];
  readonly latency: readonly { readonly promptKb: number; readonly requests: number }[];
  readonly streamRounds: number;
  readonly streams: readonly StreamLoad[];
  readonly delayRounds: number;
  readonly scrapeRounds: number;
  readonly watchedRounds: number;
  readonly startRounds: number;
  /** Requests over which memory must stay flat; 0 leaves it out. */
  readonly memoryRequests: number;
  /** Records in the usage log whose index and reports are measured; 0 leaves it out. */
  readonly usageRecords: number;
}

export interface RequestLoad {
  readonly promptKb: number;
  readonly connections: number;
  /** Every request opens a new connection, as short-lived tools do. */
  readonly reconnect: boolean;
  readonly requests: number;
}

/** Streams of 300 events, each the answer to a prompt of 100 KB. */
export interface StreamLoad {
  readonly protocol: Protocol;
  readonly clients: number;
  readonly streamsPerClient: number;
  /** Time between two events; 0 sends all of them at once. */
  readonly paceMs: number;
}

/** Each takes about a second: in shorter loads one compilation by V8 or one full collection decides the figure. */
const KEPT_CONNECTIONS: readonly RequestLoad[] = [
  { promptKb: 1, connections: 16, reconnect: false, requests: 2500 },
  { promptKb: 20, connections: 8, reconnect: false, requests: 2000 },
  { promptKb: 100, connections: 8, reconnect: false, requests: 1200 },
  { promptKb: 500, connections: 4, reconnect: false, requests: 400 },
];
const ONE_CLIENT: StreamLoad = { protocol: "chat", clients: 1, streamsPerClient: 1, paceMs: 5 };
const SOME_CLIENTS: StreamLoad = { protocol: "chat", clients: 32, streamsPerClient: 1, paceMs: 8 };
const AT_ONCE: StreamLoad = { protocol: "chat", clients: 32, streamsPerClient: 8, paceMs: 0 };
/** At this pace a bare proxy leaves half of two cores idle. Faster, and lateness would be the length of a queue. */
const MANY_CLIENTS: StreamLoad = { protocol: "chat", clients: 200, streamsPerClient: 1, paceMs: 30 };

/** What most targets need, in under a minute. */
export const QUICK: Plan = {
  warmUpRequests: 4000,
  rounds: 3,
  requests: KEPT_CONNECTIONS,
  latency: [
    { promptKb: 1, requests: 200 },
    { promptKb: 100, requests: 100 },
  ],
  streamRounds: 2,
  streams: [ONE_CLIENT, SOME_CLIENTS, AT_ONCE],
  delayRounds: 0,
  scrapeRounds: 0,
  watchedRounds: 0,
  startRounds: 1,
  memoryRequests: 0,
  usageRecords: 0,
};

export const FULL: Plan = {
  warmUpRequests: 8000,
  rounds: 7,
  requests: [...KEPT_CONNECTIONS, { promptKb: 1, connections: 4, reconnect: true, requests: 300 }],
  latency: [
    { promptKb: 1, requests: 500 },
    { promptKb: 20, requests: 400 },
    { promptKb: 100, requests: 300 },
    { promptKb: 500, requests: 100 },
  ],
  streamRounds: 3,
  streams: [ONE_CLIENT, SOME_CLIENTS, MANY_CLIENTS, AT_ONCE, { ...SOME_CLIENTS, protocol: "messages" }],
  delayRounds: 5,
  scrapeRounds: 7,
  watchedRounds: 5,
  startRounds: 11,
  memoryRequests: 100_000,
  usageRecords: 1_000_000,
};
