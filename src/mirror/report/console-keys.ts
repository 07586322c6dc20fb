import type { Snapshot } from "../../config/snapshot.ts";
import { fingerprintOf, type Holder, holdersOf, multiplierHere, toolsHolding } from "../held-here.ts";
import type { ConsoleFacts } from "../sync/syncer.ts";
import type { ConsoleStatus, KeyReport, ToolConsoleFacts } from "./shape.ts";

export interface KeysAnswer {
  readonly keys: readonly KeyReport[];
  readonly problems: readonly {
    readonly gateway: string;
    readonly why: string;
    readonly next: string | null;
  }[];
}

/** A console's keys, each beside the tools that hold it here. */
export function keysAnswer(
  { gateway, state, why, next }: ConsoleStatus,
  facts: ConsoleFacts | null,
  holders: readonly Holder[],
): KeysAnswer {
  const listed = facts?.keys ?? null;
  const keys = (listed ?? []).map(({ shown, ...key }) => ({
    gateway,
    ...key,
    key: fingerprintOf(shown),
    tools: toolsHolding(shown, holders) ?? [],
  }));
  const isEarly = state === "syncing" || state === "waiting";
  const unread = isEarly ? "its keys were not read yet" : "it lists no keys";
  const problems = listed !== null && why === null ? [] : [{ gateway, why: why ?? unread, next }];
  return { keys, problems };
}

/** What the console says of one tool's key; null: it does not list it. */
export function toolFacts(
  tool: string,
  { keys, account, asOf }: ConsoleFacts,
  snapshot: Snapshot,
): ToolConsoleFacts | null {
  const gateway = snapshot.config.tools[tool]?.gateway ?? "";
  const holder = holdersOf(gateway, snapshot).filter((one) => one.tool === tool);
  const key = keys?.find(({ shown }) => toolsHolding(shown, holder)?.length === 1);
  if (key === undefined) return null;
  const { state, group, multiplier, quota, quota_used, windows, expires_at } = key;
  // Without a group the multiplier is 1.
  const here = multiplierHere(tool, snapshot.config) ?? 1;
  const differs = multiplier !== null && Math.abs(here - multiplier) > 1e-9;
  return {
    state,
    group,
    multiplier,
    multiplier_here: differs ? here : null,
    quota,
    quota_used,
    windows,
    expires_at,
    balance: account?.balance ?? null,
    as_of: asOf,
  };
}
