/** Where time comes from. Passed in everywhere, so that a test can hold it still. */
export interface Clock {
  /** Wall time, milliseconds since the Unix epoch. May jump: never use it for a duration. */
  now(): number;
  /** Milliseconds on a clock that only goes forward. For durations and deadlines. */
  elapsed(): number;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
};
