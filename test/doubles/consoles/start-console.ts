// Starts the double of a console by its name.
import type { Test } from "tap";
import type { ConsoleDouble, DoubleOptions } from "./console-double.ts";
import { startNewApi } from "./new-api.ts";
import { startOneApi } from "./one-api.ts";
import { startSub2api } from "./sub2api.ts";

/** Every kind of console, in every version that behaves differently. */
export const EVERY_CONSOLE = [
  "sub2api",
  "sub2api without ids",
  "new-api v0.13.2",
  "new-api v1.0.0-rc.25",
  "one-api",
] as const;

/** Both kinds that most people have, one of which gives no ids, so that rows are matched in both ways. */
export const FEW_CONSOLES = ["sub2api without ids", "new-api v1.0.0-rc.25"] as const;

export type ConsoleName = (typeof EVERY_CONSOLE)[number];

export function startConsole(
  t: Test,
  name: ConsoleName,
  options: DoubleOptions = {},
): Promise<ConsoleDouble> {
  switch (name) {
    case "sub2api":
      return startSub2api(t, options);
    case "sub2api without ids":
      return startSub2api(t, { ...options, handsOutIds: false });
    case "new-api v0.13.2":
      return startNewApi(t, { ...options, version: "v0.13.2" });
    case "new-api v1.0.0-rc.25":
      return startNewApi(t, { ...options, version: "v1.0.0-rc.25" });
    case "one-api":
      return startOneApi(t, options);
  }
}
