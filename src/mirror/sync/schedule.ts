import { type ScheduledTask, schedule } from "node-cron";
import type { Clock } from "../../core/clock.ts";
import { SleepDetector } from "../../core/sleep-detector.ts";
import { HOUR_MS, MINUTE_MS } from "../../core/units.ts";

const CHECK_MS = 15_000;
/** Without a schedule in config.yaml, a timer checks this often whether a sync is due. */
const TICK_MS = MINUTE_MS;
/** More than this: the machine slept, or its clock was set. */
const SLEPT_MS = 30_000;

/**
 * When a console is read by itself: on its schedule, when the machine wakes up, and after failures at growing intervals.
 */
export class SyncSchedule {
  readonly #clock: Clock;
  readonly #sync: () => void;
  readonly #checkTimer: NodeJS.Timeout;
  readonly #interval: () => number;
  /** null: as often as #interval says. undefined: not known yet. */
  #expression: string | null | undefined;
  /** When the last sync began. */
  #begunAt: number | null = null;
  #task: ScheduledTask | null = null;
  #failures = 0;
  /** How long to wait after the last failure, and until when. */
  #wait = 0;
  #retryAt: number | null = null;
  #retryTimer: NodeJS.Timeout | undefined;
  readonly #sleepDetector: SleepDetector;

  /**
   * @param interval milliseconds between two syncs now, where config.yaml has no schedule. Asked once a minute.
   * @param onCheck called every 15 s.
   */
  constructor(clock: Clock, sync: () => void, interval: () => number, onCheck: () => void) {
    this.#clock = clock;
    this.#sync = sync;
    this.#interval = interval;
    this.#sleepDetector = new SleepDetector(clock);
    this.#checkTimer = setInterval(() => {
      onCheck();
      if (Math.abs(this.#sleepDetector.sleptMs()) >= SLEPT_MS) this.#onWake();
    }, CHECK_MS).unref();
  }

  /** @param expression null: config.yaml has none */
  follow(expression: string | null): void {
    if (expression === this.#expression) return;
    this.#expression = expression;
    this.#start();
  }

  /** Milliseconds UTC; null: never. */
  get next(): number | null {
    if (this.#retryAt !== null) return this.#retryAt;
    const run = this.#task?.getNextRun()?.getTime() ?? null;
    if (run === null || this.#expression !== null || this.#begunAt === null) return run;
    return Math.max(run, this.#begunAt + this.#interval());
  }

  /** Milliseconds between two syncs now, in whole ticks; null: config.yaml has a schedule. */
  get interval(): number | null {
    if (this.#expression !== null) return null;
    return Math.ceil((this.#interval() - TICK_MS / 2) / TICK_MS) * TICK_MS;
  }

  /** Called when a sync begins, scheduled or not. */
  began(): void {
    this.#begunAt = this.#clock.now();
  }

  /** It failed a short while ago, and is not to be called yet. */
  get isWaiting(): boolean {
    const left = (this.#retryAt ?? 0) - this.#clock.now();
    // If it is more than the wait, the clock was set back, and that time may be weeks away.
    return left > 0 && left <= this.#wait;
  }

  /** @param retryAfter seconds the console asked to wait. */
  failed(retryAfter: number | null): void {
    this.#failures += 1;
    this.#wait = backOff(this.#failures, retryAfter);
    this.#retryAt = this.#clock.now() + this.#wait;
    clearTimeout(this.#retryTimer);
    this.#retryTimer = setTimeout(this.#sync, this.#wait).unref();
  }

  succeeded(): void {
    this.#failures = 0;
    this.#retryAt = null;
    clearTimeout(this.#retryTimer);
  }

  stop(): void {
    clearInterval(this.#checkTimer);
    clearTimeout(this.#retryTimer);
    void this.#task?.destroy();
  }

  #syncUnlessWaiting(): void {
    if (!this.isWaiting) this.#sync();
  }

  #start(): void {
    void this.#task?.destroy();
    const onTime = () => {
      if (this.#isDue()) this.#syncUnlessWaiting();
    };
    // Not on the minute, when everyone's programs call.
    const expression = this.#expression ?? `${new Date(this.#clock.now()).getSeconds()} * * * * *`;
    this.#task = schedule(expression, onTime, { unref: true, suppressMissedWarning: true });
    this.#task.on("execution:missed", onTime);
  }

  #isDue(): boolean {
    if (this.#expression !== null || this.#begunAt === null) return true;
    // A clock that was set looks like a long time.
    return Math.abs(this.#clock.now() - this.#begunAt) >= this.#interval() - TICK_MS / 2;
  }

  #onWake(): void {
    // A new task: node-cron would run once for every time it missed, or wait for one that is years away.
    this.#start();
    this.#syncUnlessWaiting();
  }
}

const SHORTEST_MS = MINUTE_MS;
const LONGEST_MS = HOUR_MS;

/** Milliseconds until a console that failed this many times in a row is asked again. */
function backOff(failures: number, retryAfter: number | null): number {
  const own = Math.min(LONGEST_MS, SHORTEST_MS * 2 ** Math.min(failures - 1, 10));
  // A console that asks for a week has a wrong clock.
  const asked = Math.min(24 * LONGEST_MS, (retryAfter ?? 0) * 1000);
  return Math.max(own, asked);
}
