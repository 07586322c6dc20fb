import type { Config, Notify, QuietHours } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import { withNext } from "../core/display.ts";
import { errorCode } from "../core/errors.ts";
import { requestId } from "../core/ids.ts";
import type { Logger } from "../core/log.ts";
import type { Ticker } from "../core/ticker.ts";
import { withTimeout } from "../core/timeout.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../core/units.ts";
import type { Event } from "../events/event.ts";
import { type Channel, type ChannelDeps, createChannels } from "./channels.ts";
import type { Message, Outcome, Unsent } from "./message.ts";
import { Queue } from "./queue.ts";
import type { ChannelStatus, NotifyStatus, TestResult } from "./status.ts";

interface NotifierDeps {
  /** state/notify-queue.jsonl */
  readonly file: string;
  readonly clock: Clock;
  readonly ticker: Ticker;
  readonly log: Logger;
  /** For the program that gets events. */
  readonly env: NodeJS.ProcessEnv;
  readonly desktop: ChannelDeps["desktop"];
  /** There is no config.yaml, so nothing is known of the channels that it had. */
  readonly isSandbox: () => boolean;
  /** Milliseconds that one attempt may take. Default: see channels.ts. */
  readonly timeoutMs?: number;
}

/** An event that waits for one channel. */
interface Item {
  readonly event: Event;
  readonly at: number;
}

/** What is known of a channel beyond one configuration. */
interface ChannelState {
  channel: Channel;
  /** The next one first. */
  waiting: Item[];
  /** The attempt that runs, or the last one. */
  attempt: Promise<unknown>;
  isSending: boolean;
  /** Tests that wait for the attempt that runs. They go before the alerts that wait. */
  tests: number;
  /** By clock.elapsed(). */
  notBefore: number;
  failures: number;
  /** null: the last attempt did not fail. */
  failing: (Unsent & { readonly since: number; readonly sinceElapsed: number }) | null;
  /** Since when nothing can be sent, by clock.elapsed(). null: it can. */
  blockedSince: number | null;
  /** null: there was something to send to at the last attempt. */
  absent: { readonly problem: string; readonly sinceElapsed: number } | null;
  lost: number;
  deliveredAt: number | null;
}

const FIRST_RETRY_MS = 5000;
const LAST_RETRY_MS = 15 * MINUTE_MS;
/** Messages that wait for one channel. */
const MAX_WAITING = 1000;
const GIVE_UP_MS = DAY_MS;
/** After a weekend with a closed lid, a message is older than a day before the first attempt. */
const LEAST_TRIED_MS = HOUR_MS;
/** A stop waits this long for the attempts that run. */
const STOP_MS = 2000;
const TIDY_EVERY = 10;

/** Sends events to the desktop, a program and webhooks. Each channel has its own queue, and one attempt at a time. */
export class Notifier {
  readonly #deps: NotifierDeps;
  readonly #queue: Queue;
  readonly #channels = new Map<string, ChannelState>();
  readonly #stopped = new AbortController();
  #notify: Notify;
  #config: Config;
  #stopTicking: (() => void) | null = null;
  #ticks = 0;
  #queueProblem: string | null = null;
  #isStopping = false;

  constructor(deps: NotifierDeps, snapshot: Snapshot) {
    this.#deps = deps;
    this.#queue = new Queue(deps.file);
    this.#config = snapshot.config;
    this.#notify = snapshot.config.notify;
    const problem = this.#queue.load();
    if (problem !== null) deps.log.warn(problem);
    this.apply(snapshot);
  }

  /** Queues the event for its channels and returns at once. */
  readonly notify = (event: Event): void => {
    const wanted = this.#notify.events[event.kind] ?? [...this.#channels.keys()];
    const states = wanted.flatMap((name) => this.#channels.get(name) ?? []).filter(takesEvents);
    if (states.length === 0) return;
    const at = this.#deps.clock.now();
    const isNew = this.#queue.add(
      event,
      at,
      states.map(({ channel }) => channel.name),
    );
    if (!isNew) return;
    this.#noteQueueProblem();
    for (const state of states) {
      state.waiting.push({ event, at });
      this.#limit(state);
      this.#pump(state);
    }
    this.#tickIfNeeded();
  };

  /** Follows a configuration, or its secrets. */
  apply(snapshot: Snapshot): void {
    const isNewConfig = snapshot.config !== this.#config;
    this.#config = snapshot.config;
    this.#notify = snapshot.config.notify;
    const { desktop, env, clock, timeoutMs } = this.#deps;
    const channels = createChannels(snapshot, { desktop, env, now: () => clock.now(), timeoutMs });
    const names = new Set(channels.map(({ name }) => name));
    for (const name of this.#channels.keys()) if (!names.has(name)) this.#channels.delete(name);
    for (const channel of channels) this.#take(channel, isNewConfig);
    if (!this.#deps.isSandbox()) this.#dropOthers(names);
    for (const state of this.#channels.values()) this.#pump(state);
    this.#tickIfNeeded();
  }

  /** Sends a message to one channel or, with null, to each, whatever waits. null: there is no such channel. */
  async test(name: string | null): Promise<readonly TestResult[] | null> {
    const states = [...this.#channels.values()].filter(
      ({ channel }) => name === null || channel.name === name,
    );
    if (name !== null && states.length === 0) return null;
    return Promise.all(states.map((state) => this.#test(state)));
  }

  status(): NotifyStatus {
    return {
      channels: [...this.#channels.values()].map(channelStatus),
      quiet: isQuiet(this.#notify.quiet, this.#deps.clock.now()),
      problem: this.#queue.problem,
    };
  }

  /** What waits is in the file. */
  async stop(): Promise<void> {
    const attempts = [...this.#channels.values()].map(({ attempt }) => attempt);
    this.#stopTicking?.();
    this.#stopTicking = null;
    this.#isStopping = true;
    await withTimeout(Promise.all(attempts), STOP_MS, null);
    this.#stopped.abort();
    await Promise.all(attempts);
  }

  #take(channel: Channel, isNewConfig: boolean): void {
    const known = this.#channels.get(channel.name);
    if (known === undefined) {
      const waiting = [...this.#queue.all()].filter(({ channels }) => channels.has(channel.name));
      this.#channels.set(channel.name, {
        channel,
        waiting: waiting.map(({ event, at }) => ({ event, at })),
        attempt: Promise.resolve(),
        isSending: false,
        tests: 0,
        notBefore: 0,
        failures: 0,
        failing: null,
        blockedSince: channel.blocked === null ? null : this.#deps.clock.elapsed(),
        absent: null,
        lost: 0,
        deliveredAt: null,
      });
      return;
    }
    known.channel = channel;
    known.blockedSince = channel.blocked === null ? null : (known.blockedSince ?? this.#deps.clock.elapsed());
    if (!isNewConfig) return;
    // A person may have corrected what failed.
    known.notBefore = 0;
    if (known.failing?.result === "gone") known.failing = null;
  }

  /** Events for channels that config.yaml does not have any more. */
  #dropOthers(names: ReadonlySet<string>): void {
    const dropped = new Map<string, number>();
    for (const { event, channels } of [...this.#queue.all()])
      for (const name of channels) {
        if (names.has(name)) continue;
        this.#queue.done(event.id, name);
        dropped.set(name, (dropped.get(name) ?? 0) + 1);
      }
    for (const [channel, count] of dropped)
      this.#deps.log.warn(
        { channel, count },
        `notify: ${channel} is no longer in config.yaml, so alerts that waited for it were dropped: ${count}`,
      );
  }

  /** The oldest goes first, but what is critical stays as long as anything else waits. */
  #limit(state: ChannelState): void {
    if (state.waiting.length <= MAX_WAITING) return;
    // The first one may be on its way.
    const others = state.waiting.slice(state.isSending ? 1 : 0);
    const item = others.find(({ event }) => event.severity !== "critical") ?? others[0];
    if (item === undefined) return;
    if (state.absent === null) this.#lose(state, item, `more than ${MAX_WAITING} wait`);
    else this.#remove(state, item);
  }

  #lose(state: ChannelState, item: Item, why: string): void {
    this.#remove(state, item);
    state.lost += 1;
    const { kind, subject } = item.event;
    const channel = state.channel.name;
    this.#deps.log.error({ channel, kind, subject }, `notify: gave up an alert for ${channel}: ${why}`);
  }

  #remove(state: ChannelState, item: Item): void {
    state.waiting = state.waiting.filter((one) => one !== item);
    this.#queue.done(item.event.id, state.channel.name);
  }

  /** Sends what is next, if anything may be sent now. */
  #pump(state: ChannelState): void {
    const { clock, log } = this.#deps;
    const { channel } = state;
    if (this.#isStopping || state.isSending || state.tests > 0) return;
    if (channel.blocked !== null || !takesEvents(state)) return;
    if (clock.elapsed() < state.notBefore) return;
    const mayWait = isQuiet(this.#notify.quiet, clock.now());
    const item = state.waiting.find(({ event }) => !mayWait || event.severity === "critical");
    if (item === undefined) return;
    const attempt = this.#deliver(state, item);
    state.attempt = attempt;
    background(attempt, log, `sending an alert to ${channel.name}`);
  }

  async #deliver(state: ChannelState, item: Item): Promise<void> {
    const outcome = await this.#send(state, item.event);
    // A new configuration may have removed the channel meanwhile, and with it what waited.
    if (this.#channels.get(state.channel.name) !== state) return;
    this.#settle(state, item, outcome);
    this.#pump(state);
    this.#tickIfNeeded();
  }

  async #send(state: ChannelState, message: Message): Promise<Outcome> {
    state.isSending = true;
    try {
      return await state.channel.send(message, this.#stopped.signal);
    } catch (error) {
      return { result: "retry", problem: `it failed (${errorCode(error)})`, next: null };
    } finally {
      state.isSending = false;
    }
  }

  #settle(state: ChannelState, item: Item, outcome: Outcome): void {
    if (outcome.result === "delivered") {
      this.#remove(state, item);
      this.#noteSuccess(state);
      return;
    }
    if (this.#isStopping) return;
    if (outcome.result === "absent") {
      for (const one of this.#old(state, this.#noteAbsent(state, outcome.problem))) this.#remove(state, one);
      return;
    }
    this.#noteFailure(state, outcome);
    if (outcome.result === "gone") {
      for (const one of [...state.waiting]) this.#lose(state, one, outcome.problem);
      return;
    }
    // More than a thousand waited, and it was the one that was given up.
    if (!state.waiting.includes(item)) return;
    if (outcome.result === "gave-up") this.#lose(state, item, outcome.problem);
    else if (outcome.isRefused) state.waiting = [...state.waiting.filter((one) => one !== item), item];
    const since = state.failing?.sinceElapsed ?? 0;
    for (const one of this.#old(state, since))
      this.#lose(state, one, `it failed for a day: ${outcome.problem}`);
  }

  /** A channel that works gives up after an attempt. This one has none. */
  #giveUpBlocked(state: ChannelState): void {
    const { blocked } = state.channel;
    if (blocked === null || state.blockedSince === null || state.isSending) return;
    for (const item of this.#old(state, state.blockedSince))
      this.#lose(state, item, `it could not be sent for a day: ${blocked.problem}`);
  }

  /** What has waited for a day. @param since when sending began to fail, by clock.elapsed() */
  #old({ waiting }: ChannelState, since: number): readonly Item[] {
    const { clock } = this.#deps;
    if (clock.elapsed() - since <= LEAST_TRIED_MS) return [];
    const oldest = clock.now() - GIVE_UP_MS - quietMs(this.#notify.quiet);
    return waiting.filter(({ at }) => at < oldest);
  }

  #noteSuccess(state: ChannelState): void {
    const { log, clock } = this.#deps;
    const { name, paceMs } = state.channel;
    if (state.failing !== null) log.info({ channel: name }, `notify: ${name} works again`);
    state.failing = null;
    state.absent = null;
    state.failures = 0;
    state.deliveredAt = clock.now();
    state.notBefore = clock.elapsed() + paceMs;
  }

  /** Somebody may log in, so what waits is kept for a day. Answers since when there is nothing to send to. */
  #noteAbsent(state: ChannelState, problem: string): number {
    const { log, clock } = this.#deps;
    const { name } = state.channel;
    if (state.absent === null) log.info({ channel: name }, `notify: ${problem}`);
    const sinceElapsed = state.absent?.sinceElapsed ?? clock.elapsed();
    state.absent = { problem, sinceElapsed };
    state.failing = null;
    state.failures = 0;
    state.notBefore = clock.elapsed() + LAST_RETRY_MS;
    return sinceElapsed;
  }

  #noteFailure(state: ChannelState, outcome: Unsent): void {
    const { log, clock } = this.#deps;
    const { name } = state.channel;
    // Once for each problem, and not at each attempt.
    if (state.failing?.problem !== outcome.problem)
      log.warn({ channel: name }, `notify: ${name} cannot be notified: ${withNext(outcome)}`);
    const since = state.failing?.since ?? clock.now();
    const sinceElapsed = state.failing?.sinceElapsed ?? clock.elapsed();
    state.failing = { ...outcome, since, sinceElapsed };
    state.absent = null;
    const backoff = Math.min(FIRST_RETRY_MS * 2 ** state.failures, LAST_RETRY_MS);
    state.failures += 1;
    state.notBefore = clock.elapsed() + Math.max(backoff, outcome.afterMs ?? 0);
  }

  async #test(state: ChannelState): Promise<TestResult> {
    // One message at a time goes to a channel.
    state.tests += 1;
    while (state.isSending) await state.attempt;
    state.tests -= 1;
    const { name: channel, kind, blocked } = state.channel;
    if (blocked !== null) {
      const result = blocked.state === "held" ? "held" : "failed";
      return { channel, kind, result, problem: blocked.problem, next: blocked.next };
    }
    const sending = this.#send(state, testMessage(this.#deps.clock.now()));
    state.attempt = sending;
    const outcome = await sending;
    if (outcome.result === "delivered") this.#noteSuccess(state);
    else if (outcome.result === "absent") this.#noteAbsent(state, outcome.problem);
    else this.#noteFailure(state, outcome);
    this.#pump(state);
    if (outcome.result === "delivered")
      return { channel, kind, result: "delivered", problem: "", next: null };
    const { problem } = outcome;
    if (outcome.result === "absent") return { channel, kind, result: "absent", problem, next: null };
    return { channel, kind, result: "failed", problem, next: outcome.next };
  }

  /** While anything waits, the ticker says when to try again. Otherwise nothing runs. */
  #tickIfNeeded(): void {
    const isNeeded = [...this.#channels.values()].some(({ waiting }) => waiting.length > 0);
    if (isNeeded === (this.#stopTicking !== null) || this.#isStopping) return;
    this.#stopTicking?.();
    this.#stopTicking = isNeeded ? this.#deps.ticker.every(1, () => this.#tick()) : null;
  }

  #tick(): void {
    for (const state of this.#channels.values()) {
      this.#giveUpBlocked(state);
      this.#pump(state);
    }
    this.#tickIfNeeded();
    this.#ticks += 1;
    if (this.#ticks % TIDY_EVERY !== 0) return;
    background(
      this.#queue.tidy().then(() => this.#noteQueueProblem()),
      this.#deps.log,
      "writing down the alerts that wait",
    );
  }

  #noteQueueProblem(): void {
    const { problem } = this.#queue;
    if (problem !== null && problem !== this.#queueProblem)
      this.#deps.log.error(`alerts that wait are kept in memory only: ${problem}`);
    this.#queueProblem = problem;
  }
}

/** The receiver has not said that it accepts no more. */
function takesEvents({ failing }: ChannelState): boolean {
  return failing?.result !== "gone";
}

function testMessage(now: number): Message {
  return {
    id: requestId(now),
    at: now,
    kind: "test",
    severity: "info",
    subject: "test",
    message: "this is a test. alerts of keybearer arrive here",
    next: null,
    state: "begun",
  };
}

function channelStatus(state: ChannelState): ChannelStatus {
  const { channel, waiting, failing, absent, lost, deliveredAt } = state;
  const { name, kind, blocked } = channel;
  const common = { name, kind, waiting: waiting.length, lost, delivered_at: deliveredAt };
  if (blocked !== null)
    return { ...common, state: blocked.state, since: null, why: blocked.problem, next: blocked.next };
  if (failing !== null) {
    const { since, problem: why, next, result } = failing;
    return { ...common, state: result === "gone" ? "gone" : "failing", since, why, next };
  }
  if (absent !== null) return { ...common, state: "absent", since: null, why: absent.problem, next: null };
  return { ...common, state: "ok", since: null, why: null, next: null };
}

function minuteOfDay(now: number): number {
  const date = new Date(now);
  return date.getHours() * 60 + date.getMinutes();
}

function isQuiet(quiet: QuietHours | null, now: number): boolean {
  if (quiet === null) return false;
  const minute = minuteOfDay(now);
  const { from, to } = quiet;
  return from < to ? minute >= from && minute < to : minute >= from || minute < to;
}

function quietMs(quiet: QuietHours | null): number {
  if (quiet === null) return 0;
  const { from, to } = quiet;
  return (from < to ? to - from : to - from + 24 * 60) * MINUTE_MS;
}
