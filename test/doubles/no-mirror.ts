import type { Mirror } from "../../src/mirror/mirror.ts";

/** The mirror of a configuration in which no gateway has a console. */
export const NO_MIRROR: Mirror = {
  change: () => {},
  status: () => [],
  report: () => [],
  keys: async () => ({ keys: [], problems: [] }),
  factsOf: () => null,
  sync: () => null,
  diff: () => [],
  diffSteps: function* () {
    yield;
    return [];
  },
  compared: () => [],
  days: function* () {
    yield;
    return [];
  },
  login: async () => null,
  acknowledge: () => 0,
  forget: () => {},
  compareAgain: () => {},
  stop: async () => {},
};
