import type { Limits, Rate } from "../config/shape.ts";
import { shown } from "./correction.ts";
import { type Counts, extraIn, type Frames } from "./frames.ts";
import type { Kind, Level } from "./shortage.ts";

/** What a tool may do, as in the file. */
export interface Terms {
  readonly limits: Limits;
  readonly quota: number | null;
}

/** Requests, tokens and micro-dollars. */
export type Amounts = Readonly<Record<Kind, number>>;

export const KINDS: readonly Kind[] = ["requests", "tokens", "spend"];

/** Of the limits of a kind the one that is nearest to being reached. */
export interface Nearest {
  readonly most: number;
  readonly left: number;
  readonly resetsAt: number;
}

/** How full the limits of one tool are. Every request asks several times: the usual answers are read off in place. */
export class Gauges {
  frames: Frames;
  #terms: Terms;
  /** Copies: the lists of a configuration are frozen, and V8 makes an object for every step through such a list. */
  #rates: Readonly<Record<Kind, readonly Rate[]>>;
  /** What the quota looks at. */
  readonly #ever: Counts;

  constructor(terms: Terms, frames: Frames, ever: Counts) {
    this.#terms = terms;
    this.#rates = ratesOf(terms);
    this.frames = frames;
    this.#ever = ever;
  }

  get terms(): Terms {
    return this.#terms;
  }

  change(terms: Terms): void {
    this.#terms = terms;
    this.#rates = ratesOf(terms);
  }

  /** Everything that is counted in now. */
  counts(): readonly Counts[] {
    return [...Object.values(this.frames).map(({ counts }) => counts), this.#ever];
  }

  /** Every limit on requests, tokens and spend, the quota last. */
  levels(now: number): Level[] {
    const { quota } = this.#terms;
    const levels: Level[] = [];
    for (const kind of KINDS) for (const rate of this.#rates[kind]) levels.push(this.level(kind, rate, now));
    if (quota !== null) {
      const { used, held } = shown(this.#ever.spend);
      levels.push({ limit: { kind: "quota" }, used, held, most: quota, extra: 0, resetsAt: null });
    }
    return levels;
  }

  level(kind: Kind, { most, per }: Rate, now: number): Level {
    const frame = this.frames[per];
    const extra = extraIn(frame, kind, now);
    const { used, held } = shown(frame.counts[kind]);
    return { limit: { kind, per }, used, held, most: most + extra, extra, resetsAt: frame.window.end };
  }

  nearest(kind: Kind, now: number): Nearest | null {
    let nearest: Rate | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const rate of this.#rates[kind]) {
      const left = Math.max(0, this.#left(kind, rate, now));
      if (left >= least) continue;
      nearest = rate;
      least = left;
    }
    if (nearest === null) return null;
    const frame = this.frames[nearest.per];
    return { most: nearest.most + extraIn(frame, kind, now), left: least, resetsAt: frame.window.end };
  }

  /** The least that any limit of a kind allows in all. */
  tightest(kind: Kind, now: number): number {
    const { quota } = this.#terms;
    let least = kind === "spend" && quota !== null ? quota : Number.POSITIVE_INFINITY;
    for (const { most, per } of this.#rates[kind])
      least = Math.min(least, most + extraIn(this.frames[per], kind, now));
    return least;
  }

  /** Whether shortageOf would find nothing in any of the levels. */
  haveRoom(need: Amounts, now: number): boolean {
    const { quota } = this.#terms;
    for (const kind of KINDS) {
      if (need[kind] === 0) continue;
      for (const rate of this.#rates[kind]) if (need[kind] > this.#left(kind, rate, now)) return false;
    }
    const { used, held } = this.#ever.spend;
    return quota === null || need.spend === 0 || need.spend <= quota - Math.max(0, used) - held;
  }

  #left(kind: Kind, { most, per }: Rate, now: number): number {
    const frame = this.frames[per];
    const { used, held } = frame.counts[kind];
    return most + extraIn(frame, kind, now) - Math.max(0, used) - held;
  }
}

function ratesOf({ limits }: Terms): Readonly<Record<Kind, readonly Rate[]>> {
  return { requests: [...limits.requests], tokens: [...limits.tokens], spend: [...limits.spend] };
}
