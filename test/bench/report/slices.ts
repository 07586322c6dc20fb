import type { CandidateName } from "../candidates/candidate.ts";
import type { LoadSeries, LoadSlice } from "../measures/requests.ts";

/** Of one candidate under one load. */
export function slicesOf(
  loads: readonly LoadSeries[],
  name: CandidateName,
  load: { readonly connections: number; readonly body: string },
): readonly LoadSlice[] {
  const found = loads.find(
    ({ candidate, connections, body }) =>
      candidate === name && connections === load.connections && body === load.body,
  );
  return found?.slices ?? [];
}

/**
 * Of every two slices that were measured right after each other, one number. A machine that is slow for a while is slow for
 * both. Where one of them had no answer at all, the machine was somebody else's, and the two say nothing.
 */
export function neighbours(
  ours: readonly LoadSlice[],
  theirs: readonly LoadSlice[],
  join: (our: LoadSlice, their: LoadSlice) => number,
): number[] {
  return theirs.flatMap((their) =>
    ours
      .filter((our) => Math.abs(our.slice - their.slice) === 1 && our.requests > 0 && their.requests > 0)
      .map((our) => join(our, their)),
  );
}

/** What a candidate adds to the upstream's own time, each slice over that of the upstream in the same round. */
export function added(
  slices: readonly LoadSlice[],
  direct: readonly LoadSlice[],
  field: "p50Ms" | "p99Ms",
): number[] {
  return slices.flatMap((slice) => {
    const bare = direct.find(({ round }) => round === slice.round);
    return bare === undefined || bare.requests === 0 || slice.requests === 0
      ? []
      : [slice[field] - bare[field]];
  });
}
