import type { Config, Tool } from "../config/shape.ts";
import { isInGroup } from "../limits/admit.ts";
import type { ModelUse } from "./history.ts";

/** A name that is asked for, or likely to be, and that the gateway's list does not have. */
export interface FailingName {
  readonly name: string;
  /** Requests that named it in the last 30 days, and how many of them were answered all the same. */
  readonly requests: number;
  readonly answered: number;
  /** It is the tool's `model:` in config.yaml. */
  readonly in_config: boolean;
  /** Names of the list that are this one with something before or behind it. */
  readonly instead: readonly string[];
}

/** What behind a name only says which make of it: the maker's date, or that it is the newest. */
const MAKE = /[-@](?:20\d\d-?\d\d(?:-?\d\d)?|latest)$/;

/** The names in use that the list lacks, and those that stand in it only with a date behind them. */
export function failingNames(
  tool: Tool,
  list: readonly string[],
  uses: readonly ModelUse[],
): readonly FailingName[] {
  const counted = new Map<string, { requests: number; answered: number }>();
  if (tool.model !== null) counted.set(tool.model, { requests: 0, answered: 0 });
  for (const { tool: name, model, requests, answered } of uses) {
    if (name !== tool.name || model === "") continue;
    const before = counted.get(model) ?? { requests: 0, answered: 0 };
    counted.set(model, { requests: before.requests + requests, answered: before.answered + answered });
  }
  for (const id of list) {
    const bare = id.replace(MAKE, "");
    if (bare !== id && !counted.has(bare)) counted.set(bare, { requests: 0, answered: 0 });
  }
  return [...counted]
    .filter(([name]) => !list.includes(name))
    .map(([name, sums]) => ({ name, ...sums, in_config: name === tool.model, instead: likes(name, list) }))
    .toSorted((one, other) => rank(one) - rank(other) || other.requests - one.requests);
}

function rank({ in_config, requests }: FailingName): number {
  if (in_config) return 0;
  return requests > 0 ? 1 : 2;
}

const MOST_LIKES = 3;

function likes(name: string, list: readonly string[]): string[] {
  const plain = plainName(name);
  const same = list.filter((id) => plainName(id) === plain);
  const longer = list.filter((id) => plainName(id).startsWith(`${plain}-`) && !same.includes(id));
  return [...same, ...longer].slice(0, MOST_LIKES);
}

/** Without the path before it, the date behind it, and with one spelling of its numbers. */
function plainName(name: string): string {
  const last = name.slice(name.lastIndexOf("/") + 1).toLowerCase();
  return last.replace(MAKE, "").replace(/(?<=\d)\.(?=\d)/g, "-");
}

/** Whether config.yaml lets the tool ask for this model. */
export function isAllowed(model: string, tool: Tool, { gateways }: Pick<Config, "gateways">): boolean {
  const group = tool.group === null ? undefined : gateways[tool.gateway]?.groups[tool.group];
  return group === undefined || isInGroup(model, group.models);
}
