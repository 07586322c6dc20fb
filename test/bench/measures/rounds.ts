import type { Candidate, CandidateName } from "../candidates/candidate.ts";

/** Those of one measure in one round: each round begins with another one, so that nobody is always first. */
export function inTurn<T>(all: readonly T[], round: number): T[] {
  const first = all.length === 0 ? 0 : round % all.length;
  return [...all.slice(first), ...all.slice(0, first)];
}

/**
 * The slices of one load in one round: keybearer between any two of its rivals, so that each of them is compared with a
 * slice right before or after its own, and a slow minute of the machine is one for both.
 */
export function alternating(
  candidates: readonly Candidate[],
  round: number,
  rivals: readonly CandidateName[] | undefined,
): Candidate[] {
  const ours = candidates.filter(({ name }) => name === "keybearer");
  const others = candidates.filter(({ name }) => name !== "keybearer");
  const wanted =
    rivals === undefined ? others : rivals.flatMap((name) => others.filter((one) => one.name === name));
  const turned = inTurn(wanted, round);
  if (turned.length < 2) return [...turned, ...ours];
  return turned.flatMap((rival, at) => (at === 0 ? [rival] : [...ours, rival]));
}

export function pause(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}
