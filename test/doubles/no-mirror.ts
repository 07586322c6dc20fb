import type { Mirror } from "../../src/mirror/mirror.ts";

/** The mirror of a configuration in which no gateway has a console. */
export const NO_MIRROR = {
  status: async () => [],
  report: async () => [],
  keys: async () => ({ keys: [], problems: [] }),
  refreshKeys: async () => ({ keys: [], problems: [] }),
  listKeys: async () => [],
  now: () => 0,
  factsOf: () => null,
  canChangeKeys: () => false,
  sync: async () => null,
  diff: async () => [],
  compared: () => [],
  days: async () => [],
  login: async () => null,
  acknowledge: async () => 0,
} satisfies Partial<Mirror>;
