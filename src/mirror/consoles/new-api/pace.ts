import type { AdapterMeans } from "../console.ts";
import type { Ask } from "./envelope.ts";

export interface Pace {
  /** So many questions go at once. */
  readonly atOnce: number;
  /** Those after them are so far apart, milliseconds. */
  readonly apart: number;
}

/** Waits until the next question may go. */
function createPace({ now, pause }: AdapterMeans, { atOnce, apart }: Pace): () => Promise<void> {
  let asked = 0;
  let last = 0;
  return async () => {
    asked += 1;
    if (asked > atOnce) {
      const wait = last + apart - now();
      // A clock that was set back must not hold the walk for hours.
      if (wait > 0) await pause(Math.min(wait, apart));
    }
    last = now();
  };
}

/** The same questions, at a pace that begins anew. */
export function paced(ask: Ask, means: AdapterMeans, pace: Pace): Ask {
  const turn = createPace(means, pace);
  return async (path, about) => {
    await turn();
    return ask(path, about);
  };
}
