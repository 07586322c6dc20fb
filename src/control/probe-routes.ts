import { NOT_FOUND, type Route } from "./route.ts";

export const PROBE_ROUTES: Readonly<Record<string, Route>> = {
  "GET /models": ({ prober }) => prober.models(null),
  "GET /models/:name": async ({ prober }, { name }) => (await prober.models(name)) ?? NOT_FOUND,
  "GET /probes": ({ prober }) => prober.probes(),
};
