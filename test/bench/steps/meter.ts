import type { Reading } from "../../../src/metering/meter.ts";

const NOTHING: Reading = {
  tokens: null,
  model: null,
  id: null,
  serviceTier: null,
  text: { ascii: 0, other: 0 },
  reached: null,
  failed: false,
  refused: false,
  refusal: null,
  problem: null,
};

/** Reads nothing of a response. */
export class Meter {
  see(): void {}

  soFar() {
    return { deltas: 0, reported: null, written: 0 };
  }

  async finish(): Promise<Reading> {
    return NOTHING;
  }
}
