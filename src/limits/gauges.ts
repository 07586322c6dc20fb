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

/** How full the limits of one tool are. Every request reads them several times, so that what it needs is read off in place. */
export class Gauges {
  terms: Terms;
  frames: Frames;
  /** What the quota looks at. */
  readonly #ever: Counts;

  constructor(terms: Terms, frames: Frames, ever: Counts) {
    this.terms = terms;
    this.frames = frames;
    this.#ever = ever;
  }

  /** Everything that is counted in now. */
  counts(): readonly Counts[] {
    return [...Object.values(this.frames).map(({ counts }) => counts), this.#ever];
  }

  /** Every limit on requests, tokens and spend, the quota last. */
  levels(now: number): Level[] {
    const { limits, quota } = this.terms;
    const levels: Level[] = [];
    for (const kind of KINDS) for (const rate of limits[kind]) levels.push(this.level(kind, rate, now));
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

  /** The limit of a kind that has least left. */
  nearest(kind: Kind, now: number): Level | null {
    let nearest: Rate | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const rate of this.terms.limits[kind]) {
      const left = Math.max(0, this.#left(kind, rate, now));
      if (left >= least) continue;
      nearest = rate;
      least = left;
    }
    return nearest === null ? null : this.level(kind, nearest, now);
  }

  /** The least that any limit of a kind allows in all. */
  tightest(kind: Kind, now: number): number {
    const { limits, quota } = this.terms;
    let least = kind === "spend" && quota !== null ? quota : Number.POSITIVE_INFINITY;
    for (const { most, per } of limits[kind])
      least = Math.min(least, most + extraIn(this.frames[per], kind, now));
    return least;
  }

  /** Whether shortageOf would find nothing in any of the levels. */
  haveRoom(need: Amounts, now: number): boolean {
    const { limits, quota } = this.terms;
    for (const kind of KINDS) {
      if (need[kind] === 0) continue;
      for (const rate of limits[kind]) if (need[kind] > this.#left(kind, rate, now)) return false;
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
