import type { Agent } from "node:http";
import type { Clock } from "../clock.ts";
import type { Gateway } from "../config/shape.ts";
import {
  type Agents,
  closeIdleOf,
  connectionIdentity,
  createAgents,
  tlsOptions,
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
  wayFor(gateway: Gateway, path: string): Way;
  /** Lets go of the connections to gateways that are no longer configured as they were. */
  keepOnly(gateways: readonly Gateway[]): void;
  close(): void;
}

interface KnownGateway {
  readonly addresses: Addresses;
  readonly ways: Map<Address, Way>;
}

interface KeptWay extends Way {
  readonly identity: string;
}

export function createWays(clock: Clock): Ways {
  const agents = createAgents(clock);
  /** What is known of a gateway as one snapshot holds it, for every request but its first. */
  let known = new WeakMap<Gateway, KnownGateway>();
  /** These outlive a change of the configuration. */
  let kept: KeptWay[] = [];
  const hasSlept = sleepWatch(clock);
  const knownOf = (gateway: Gateway) => {
    let found = known.get(gateway);
    if (found === undefined) {
      found = { addresses: addressesOf(gateway), ways: new Map() };
      known.set(gateway, found);
    }
    return found;
  };
  const wayTo = (gateway: Gateway, address: Address): Way => {
    const scheme = address.secure ? "https:" : "http:";
    const identity = connectionIdentity(gateway, scheme);
    const agent = agents.agentFor(gateway, address.origin);
    const before = kept.find((one) => one.identity === identity && one.address.host === address.host);
    const lines = before?.lines ?? new Lines(clock, address, tlsOptions(gateway), tunnelOf(gateway, scheme));
    if (before === undefined) kept.push({ identity, address, agent, lines });
    return { address, agent, lines };
  };
  return {
    agentFor: agents.agentFor,
    wayFor(gateway, path) {
      const { addresses, ways } = knownOf(gateway);
      const address = addressFor(path, addresses);
      if (hasSlept()) for (const one of kept) closeIdle(one);
      let way = ways.get(address);
      if (way === undefined) {
        way = wayTo(gateway, address);
        ways.set(address, way);
      }
      return way;
    },
    keepOnly(gateways) {
      const wanted = wantedIdentities(gateways);
      known = new WeakMap();
      const dropped = kept.filter(({ identity }) => !wanted.has(identity));
      kept = kept.filter(({ identity }) => wanted.has(identity));
      for (const one of dropped) closeIdle(one);
      agents.keepOnly(gateways);
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
