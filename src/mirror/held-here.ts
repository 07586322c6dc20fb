import type { Config } from "../config/shape.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Secret } from "../secret.ts";
import type { ConsoleKey, ShownKey } from "./consoles/console.ts";
import type { HeldKey, KeyLink } from "./store/keys.ts";

/** A tool of one gateway with its key, as far as that can be had just now. */
export interface Holder {
  readonly tool: string;
  readonly key: Secret | null;
  /** Its key is used elsewhere on purpose. */
  readonly elsewhere: boolean;
}

export function holdersOf(gateway: string, { config, keyOf }: Snapshot): Holder[] {
  return Object.values(config.tools)
    .filter((tool) => tool.gateway === gateway)
    .map((tool) => {
      const key = keyOf(tool);
      return {
        tool: tool.name,
        key: key.state === "ready" ? key.key : null,
        elsewhere: tool.keysElsewhere || tool.watchOnly,
      };
    });
}

/** All that is held, at all gateways. */
export function heldNow(snapshot: Snapshot): HeldKey[] {
  return Object.keys(snapshot.config.gateways).flatMap((gateway) =>
    holdersOf(gateway, snapshot).map(({ tool, key }) => ({ gateway, tool, key: key?.fingerprint ?? null })),
  );
}

/** The tools that hold a key which a console lists; null: what the console shows, or a key that is not there, cannot tell. */
export function toolsHolding(shown: ShownKey, holders: readonly Holder[]): readonly string[] | null {
  if (shown.how === "hidden") return null;
  const found = holders.filter(({ key }) => key !== null && isShown(key, shown)).map(({ tool }) => tool);
  if (found.length > 0) return found;
  return holders.every(({ key }) => key !== null) ? [] : null;
}

function isShown(key: Secret, shown: Exclude<ShownKey, { how: "hidden" }>): boolean {
  return shown.how === "whole" ? key.equals(shown.key) : key.hasEnds(shown.head, shown.tail);
}

/**
 * Which of a console's keys are held here, as far as it can be told. By name, too: old rows have nothing else. A name that
 * several keys have is passed over by whoever keeps these.
 */
export function linksOf(keys: readonly ConsoleKey[], holders: readonly Holder[]): KeyLink[] {
  return keys.flatMap(({ ref, name, account, shown }) => {
    const tools = toolsHolding(shown, holders);
    if (tools === null) return [];
    const holder = holders.find(({ tool }) => tool === tools[0]);
    const key = holder?.key?.fingerprint ?? null;
    return ref.startsWith("id:")
      ? [
          { ref, key },
          { ref: account === undefined ? `name:${name}` : `name:${account}/${name}`, key },
        ]
      : [{ ref, key }];
  });
}

/** What may be shown of a key that a console lists. */
export function fingerprintOf(shown: ShownKey): string | null {
  switch (shown.how) {
    case "whole":
      return shown.key.fingerprint;
    case "ends":
      return `…${shown.tail.slice(-4)}`;
    case "hidden":
      return null;
  }
}

/** The multiplier that config.yaml gives a tool's group; null: it has none. */
export function multiplierHere(tool: string, { tools, gateways }: Config): number | null {
  const { gateway = "", group = null } = tools[tool] ?? {};
  return group === null ? null : (gateways[gateway]?.groups[group]?.multiplier ?? null);
}

/** The held keys that no account lists. None, as long as what a console shows cannot tell. */
export function unlistedKeys(keys: readonly ConsoleKey[] | null, holders: readonly Holder[]): string[] {
  if (keys === null || keys.some(({ shown }) => shown.how === "hidden")) return [];
  const listed = new Set(keys.flatMap(({ shown }) => toolsHolding(shown, holders) ?? []));
  const unlisted = holders.filter(({ tool }) => !listed.has(tool));
  return [...new Set(unlisted.flatMap(({ key }) => (key === null ? [] : [key.fingerprint])))];
}
