import type { Agent } from "node:http";
import type { Clock } from "../clock.ts";
import type { Gateway, Tool } from "../config/shape.ts";
import {
  type Agents,
  closeIdleOf,
  connectionIdentity,
  createAgents,
  tunnelOf,
  wantedIdentities,
} from "./agents.ts";
import { Lines } from "./lines.ts";
import { type Address, type Addresses, addressesOf, addressFor } from "./route.ts";
import { sleepWatch } from "./slept.ts";

/** How a request gets to its gateway. */
export interface Way {
  readonly address: Address;
  /** For what is sent while it still comes. */
  readonly agent: Agent;
  /** For what is here whole. */
  readonly lines: Lines;
}

export interface Ways extends Pick<Agents, "agentFor"> {
  wayFor(gateway: Gateway, tool: Tool, path: string): Way;
  /** Lets go of the connections of tools that are gone, and to gateways that are no longer configured as they were. */
  keepOnly(gateways: readonly Gateway[], tools: readonly string[]): void;
  close(): void;
}

interface KnownTool {
  readonly addresses: Addresses;
  readonly ways: Map<Address, Way>;
}

interface KeptWay extends Way {
  readonly identity: string;
}

export function createWays(clock: Clock): Ways {
  const agents = createAgents(clock);
  /** By tool, where the gateway is as one snapshot holds it, for every request but its first. */
  let known = new WeakMap<Gateway, Map<string, KnownTool>>();
  /** These outlive a change of the configuration. */
  let kept: KeptWay[] = [];
  const hasSlept = sleepWatch(clock);
  const knownOf = (gateway: Gateway, tool: Tool) => {
    let tools = known.get(gateway);
    if (tools === undefined) {
      tools = new Map();
      known.set(gateway, tools);
    }
    let found = tools.get(tool.name);
    if (found === undefined) {
      found = { addresses: addressesOf(gateway), ways: new Map() };
      tools.set(tool.name, found);
    }
    return found;
  };
  const wayTo = (gateway: Gateway, tool: string, address: Address): Way => {
    const scheme = address.secure ? "https:" : "http:";
    const identity = connectionIdentity(gateway, scheme, tool);
    const agent = agents.agentFor(gateway, address.origin, tool);
    const before = kept.find((one) => one.identity === identity && one.address.host === address.host);
    const tls = agents.tlsFor(gateway, scheme);
    const lines = before?.lines ?? new Lines(clock, address, tls, tunnelOf(gateway, tls));
    if (before === undefined) kept.push({ identity, address, agent, lines });
    return { address, agent, lines };
  };
  return {
    agentFor: agents.agentFor,
    wayFor(gateway, tool, path) {
      const { addresses, ways } = knownOf(gateway, tool);
      const address = addressFor(path, addresses);
      if (hasSlept()) for (const one of kept) closeIdle(one);
      let way = ways.get(address);
      if (way === undefined) {
        way = wayTo(gateway, tool.name, address);
        ways.set(address, way);
      }
      return way;
    },
    keepOnly(gateways, tools) {
      const wanted = wantedIdentities(gateways, tools);
      known = new WeakMap();
      const dropped = kept.filter(({ identity }) => !wanted.has(identity));
      kept = kept.filter(({ identity }) => wanted.has(identity));
      for (const one of dropped) closeIdle(one);
      agents.keepOnly(gateways, tools);
    },
    close() {
      for (const one of kept) closeIdle(one);
      kept = [];
      known = new WeakMap();
      agents.close();
    },
  };
}

/** Closes what nobody uses of the connections there are. */
export function closeIdle({ agent, lines }: Way): void {
  closeIdleOf(agent);
  lines.closeIdle();
}
