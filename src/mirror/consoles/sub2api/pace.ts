import type { AdapterMeans } from "../console.ts";

/** Waits until the usage log may be asked again. */
export type Pace = () => Promise<void>;

const MINUTE = 60_000;
/** The panel allows 60 a minute under /usage, and the person may be looking at it in a browser meanwhile. */
const MOST_A_MINUTE = 50;
const AT_ONCE = 20;
const APART_MS = 1250;

export function createPace({ now, pause }: Pick<AdapterMeans, "now" | "pause">): Pace {
  let asked: number[] = [];
  return async () => {
    const time = now();
    // A clock that was set back leaves times in the future, which say nothing.
    asked = asked.filter((at) => at > time - MINUTE && at <= time);
    const [oldest = time] = asked;
    if (asked.length >= MOST_A_MINUTE - 1) await pause(Math.max(APART_MS, oldest + MINUTE - time));
    else if (asked.length >= AT_ONCE) await pause(APART_MS);
    asked.push(now());
  };
}
