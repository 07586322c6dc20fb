import { NOT_FOUND, type Route } from "./route.ts";

/** What the daemon asks gateways for on its owner's behalf, with the keys that only it has read. */
export interface Probing {
  /** The models of one tool, or of all that are enabled. null: there is no such tool. */
  models(tool: string | null): Promise<unknown> | null;
  /** Every enabled tool's key against its gateway. */
  probes(): Promise<unknown>;
}

export const PROBE_ROUTES: Readonly<Record<string, Route>> = {
  "GET /models": ({ probing }) => probing.models(null) ?? NOT_FOUND,
  "GET /models/:name": ({ probing }, { name }) => probing.models(name) ?? NOT_FOUND,
  "GET /probes": ({ probing }) => probing.probes(),
};
