import type { Probing } from "../../src/control/probe-routes.ts";

/** A daemon that nobody asks about its gateways. */
export const NO_PROBING: Probing = { models: () => null, probes: async () => [] };
