/** Somebody who looks for one thing near a time, in lists that are sorted by time. */
export interface Seeker<T> {
  readonly near: number;
  readonly from: number;
  readonly to: number;
  readonly lists: readonly Timeline<T>[];
  readonly fits: (item: T) => boolean;
}

/** Things in the order of time, of which what is taken is stepped over at once, however much it is. */
export interface Timeline<T> {
  readonly items: readonly T[];
  readonly times: readonly number[];
  /** The nearest free index at or below, and at or above; 0 and length + 1 are the ends: shifted by one. */
  readonly below: number[];
  readonly above: number[];
}

interface Choice<T> {
  readonly seeker: number;
  readonly list: Timeline<T>;
  readonly index: number;
  readonly distance: number;
}

export function timeline<T>(items: readonly T[], timeOf: (item: T) => number): Timeline<T> {
  const shifted = Array.from({ length: items.length + 2 }, (_, index) => index);
  return { items, times: items.map(timeOf), below: shifted, above: [...shifted] };
}

/**
 * Each seeker gets at most one thing, each thing has at most one seeker; the nearest of all first, the earlier one of
 * two as near. Nobody is compared with everybody: a seeker knows only its next choice.
 */
export function assignNearest<T>(seekers: readonly Seeker<T>[]): (T | null)[] {
  const given: (T | null)[] = seekers.map(() => null);
  const queue: Choice<T>[] = [];
  const ask = (seeker: Seeker<T>, number: number) => {
    const choice = nextChoice(seeker, number);
    if (choice !== null) push(queue, choice);
  };
  seekers.forEach(ask);
  for (let choice = pop(queue); choice !== undefined; choice = pop(queue)) {
    const { list, index } = choice;
    const seeker = seekers[choice.seeker];
    if (seeker === undefined) continue;
    if (free(list.below, index + 1) !== index + 1) {
      ask(seeker, choice.seeker);
      continue;
    }
    given[choice.seeker] = list.items[index] ?? null;
    list.below[index + 1] = index;
    list.above[index + 1] = index + 2;
  }
  return given;
}

function nextChoice<T>(seeker: Seeker<T>, number: number): Choice<T> | null {
  let best: Choice<T> | null = null;
  for (const list of seeker.lists) {
    const start = firstAtOrAfter(list.times, seeker.near);
    for (const index of [earlierThan(list, start, seeker), laterThan(list, start, seeker)]) {
      const time = index === null ? undefined : list.times[index];
      if (index === null || time === undefined) continue;
      const choice = { seeker: number, list, index, distance: Math.abs(time - seeker.near) };
      if (best === null || before(choice, best)) best = choice;
    }
  }
  return best;
}

function earlierThan<T>(list: Timeline<T>, start: number, { from, fits }: Seeker<T>): number | null {
  for (let spot = free(list.below, start); spot > 0; spot = free(list.below, spot - 1)) {
    const item = list.items[spot - 1];
    if (item === undefined || (list.times[spot - 1] ?? 0) < from) return null;
    if (fits(item)) return spot - 1;
  }
  return null;
}

function laterThan<T>(list: Timeline<T>, start: number, { to, fits }: Seeker<T>): number | null {
  const end = list.items.length;
  for (let spot = free(list.above, start + 1); spot <= end; spot = free(list.above, spot + 1)) {
    const item = list.items[spot - 1];
    if (item === undefined || (list.times[spot - 1] ?? 0) > to) return null;
    if (fits(item)) return spot - 1;
  }
  return null;
}

/** Follows the hints to a free spot, and shortens them on the way. */
function free(hints: number[], from: number): number {
  let spot = from;
  for (let hint = hints[spot] ?? spot; hint !== spot; hint = hints[spot] ?? spot) {
    hints[spot] = hints[hint] ?? hint;
    spot = hints[spot] ?? spot;
  }
  return spot;
}

export function firstAtOrAfter(times: readonly number[], time: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function before<T>(a: Choice<T>, b: Choice<T>): boolean {
  const [first, second] = [a.list.times[a.index] ?? 0, b.list.times[b.index] ?? 0];
  if (a.distance !== b.distance) return a.distance < b.distance;
  if (first !== second) return first < second;
  return a.seeker !== b.seeker ? a.seeker < b.seeker : a.index < b.index;
}

function push<T>(heap: Choice<T>[], choice: Choice<T>): void {
  let spot = heap.length;
  for (; spot > 0; spot = (spot - 1) >> 1) {
    const parent = heap[(spot - 1) >> 1];
    if (parent === undefined || !before(choice, parent)) break;
    heap[spot] = parent;
  }
  heap[spot] = choice;
}

function pop<T>(heap: Choice<T>[]): Choice<T> | undefined {
  const top = heap[0];
  const last = heap.pop();
  if (heap.length === 0 || last === undefined) return top;
  let spot = 0;
  for (let child = 1; child < heap.length; child = 2 * spot + 1) {
    const [left, right] = [heap[child], heap[child + 1]];
    if (left !== undefined && right !== undefined && before(right, left)) child += 1;
    const lower = heap[child];
    if (lower === undefined || !before(lower, last)) break;
    heap[spot] = lower;
    spot = child;
  }
  heap[spot] = last;
  return top;
}
