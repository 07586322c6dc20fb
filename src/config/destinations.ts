import { createHash } from "node:crypto";
import type { Gateway } from "./shape.ts";

/** What decides who gets to see a secret: the origins it is sent to, the proxy on the way, and who vouches for them. */
export function destinationsOf({ proxy, authority }: Gateway, addresses: readonly string[]): string[] {
  const destinations = new Set(addresses.map((address) => new URL(address).origin));
  // These are no addresses, so that no pin of a proxy is ever taken for one of a gateway.
  if (proxy !== null) destinations.add(`proxy ${proxy}`);
  if (authority !== null) {
    const digest = createHash("sha256").update(authority.pem).digest("hex");
    destinations.add(`ca_file ${authority.file} (sha256 ${digest.slice(0, 16)})`);
  }
  return [...destinations];
}
