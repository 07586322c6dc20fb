import type { Prober } from "../../src/doctor/tool-probes.ts";

/** A daemon that asks no gateway. */
export const NO_PROBER: Pick<Prober, keyof Prober> = { models: async () => null, probes: async () => [] };
