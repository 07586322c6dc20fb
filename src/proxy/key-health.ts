import type { Clock } from "../clock.ts";
import type { Secret } from "../secret.ts";
import type { CauseName } from "./cause.ts";
import type { Outcome } from "./exchange.ts";

/** How the gateway refuses a tool's key, as its last calls showed. */
export interface KeyRefusal {
  readonly cause: CauseName;
  readonly status: number;
  /** The first refusal since the last success. */
  readonly since: number;
  readonly times: number;
  readonly advice: string;
  /** The gateway's own words. */
  readonly words: string | null;
  readonly key: string;
}

export interface KeyHealth {
  note(tool: string, key: Secret, outcome: Outcome): void;
  /** null: nothing is known against it. */
  of(tool: string): KeyRefusal | null;
  lastUse(tool: string): number | null;
}

/** @param usedBefore when a tool was last used before this process began. */
export function createKeyHealth(
  clock: Clock,
  usedBefore: (tool: string) => number | null = () => null,
): KeyHealth {
  const refused = new Map<string, KeyRefusal>();
  const uses = new Map<string, number>();
  return {
    note(tool, key, outcome) {
      uses.set(tool, clock.now());
      const { cause, status } = outcome;
      if (status === null) return;
      if (cause === null) {
        if (status < 400) refused.delete(tool);
        return;
      }
      // An unknown model or a wrong path says nothing about the key. The usage log has these refusals.
      if (!cause.concernsKey) return;
      const before = refused.get(tool);
      const same = before !== undefined && before.key === key.fingerprint && before.cause === cause.name;
      refused.set(tool, {
        cause: cause.name,
        status,
        since: same ? before.since : clock.now(),
        times: same ? before.times + 1 : 1,
        advice: cause.advice,
        words: outcome.words,
        key: key.fingerprint,
      });
    },
    of: (tool) => refused.get(tool) ?? null,
    lastUse: (tool) => uses.get(tool) ?? usedBefore(tool),
  };
}
