import type { Controls } from "../../src/control/routes.ts";
import type { IndexState } from "../../src/usage/index/indexer.ts";

export const CURRENT: IndexState = {
  current: true,
  share: 1,
  rebuilding: false,
  waitingFor: null,
  damagedLines: 0,
};

/** The usage log of a daemon that records nothing: its index is always up to date. */
export const NO_USAGE: Controls["usage"] = { catchUp: async () => CURRENT, rebuild: async () => CURRENT };
