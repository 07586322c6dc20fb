import type { Refusal } from "../core/refusal.ts";
import type { RecordEnd } from "../usage/record.ts";
import { NOTHING_OBSERVED, type Observed } from "./observer.ts";

/** How a call ended. Every call has exactly one. */
export interface Outcome {
  readonly end: RecordEnd;
  /** The status that the client got; null: the client was gone. */
  readonly status: number | null;
  readonly refusal: Refusal | null;
  /** Why there was no whole response of the gateway's, in a few words; null: there was one, or the gateway did not cause it. */
  readonly problem: string | null;
  readonly observed: Observed;
}

/** For a call that ended before anything was sent to a gateway. */
export const NOTHING_SENT: Outcome = Object.freeze({
  end: "refused",
  status: null,
  refusal: null,
  problem: null,
  observed: NOTHING_OBSERVED,
});
