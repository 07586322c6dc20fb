import { type Inventory, makeInventory } from "../../adopt/inventory.ts";
import { ownerOf } from "../../adopt/plan.ts";
import type { Surroundings } from "../../clients/description.ts";
import { type FoundSettings, findSettings, isOwnAddress } from "../../clients/find.ts";
import { DEFAULT_LISTEN } from "../../config/schema.ts";
import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import type { Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { loadHere } from "../config-here.ts";

/* The keys outside keybearer, as every part of `keybearer adopt` sees them. */

export interface AdoptOptions {
  readonly write?: boolean;
  /** The client, or true for all. */
  readonly undo?: string | boolean;
  readonly only?: string;
  readonly store?: string;
  /** undefined: asked. */
  readonly rotate?: boolean;
  readonly yes?: boolean;
  /** With --undo: also what was changed since. */
  readonly force?: boolean;
  readonly json?: boolean;
  readonly config?: string;
}

/** What was found on this machine. */
export interface Search {
  readonly where: Surroundings;
  readonly found: FoundSettings;
  readonly inventory: Inventory;
}

/** @param only a client; null: all. @param moved keys that are searched for anywhere in these files */
export async function searchKeys(
  paths: Paths,
  where: Surroundings,
  only: string | null,
  moved: readonly Secret[] = [],
): Promise<Search> {
  const ports = await ownPorts(paths);
  const all = await findSettings(where, moved);
  const found = only === null ? all : onlyOf(all, only);
  return { where, found, inventory: makeInventory(found, (url) => isOwnAddress(url, ports)) };
}

function onlyOf(found: FoundSettings, client: string): FoundSettings {
  const isMeant = (place: { readonly client: string }) => place.client === client;
  return {
    ...found,
    keys: found.keys.filter((key) => isMeant(key) || ownerOf(key) === client),
    shaped: found.shaped.filter(isMeant),
    environment: [],
    logins: found.logins.filter(isMeant),
    opaque: found.opaque.filter(isMeant),
  };
}

/** A daemon may be busy, but a person who only reads does not wait longer. */
export const STATUS_MS = 3000;

/** The ports that keybearer listens on, by config.yaml and by the daemon that runs. */
async function ownPorts(paths: Paths): Promise<number[]> {
  const { config } = await loadHere(paths, { strict: false });
  const asked = await askDaemon<Status>(paths, "GET", "/status", undefined, STATUS_MS);
  const running = asked.ok ? asked.value.listen.map((address) => Number(/:(\d+)$/.exec(address)?.[1])) : [];
  return [config?.listen.port ?? DEFAULT_LISTEN.port, ...running];
}

/** Whether a key is left in a place that keybearer moves or reports. */
export function holdsKeys({ inventory, found }: Search): boolean {
  return (
    inventory.pairs.length + inventory.reported.length + found.shaped.length + found.environment.length > 0
  );
}
