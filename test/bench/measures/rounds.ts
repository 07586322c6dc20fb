import type { Candidate, CandidateName } from "../candidates/candidate.ts";

/** Candidates of one measure in one round: each round begins with another one, so that nobody is always first. */
export function inTurn(
  candidates: readonly Candidate[],
  round: number,
  only: readonly CandidateName[] | undefined,
): Candidate[] {
  const wanted = candidates.filter(({ name }) => only === undefined || only.includes(name));
  const first = wanted.length === 0 ? 0 : round % wanted.length;
  return [...wanted.slice(first), ...wanted.slice(0, first)];
}

export function pause(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}
