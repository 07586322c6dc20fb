import type { Gateway } from "../config/schema.ts";
import { withoutVersion } from "../config/values.ts";

/** Where a request goes, in the parts that a connection needs. */
export interface Address {
  /** Scheme, host and port. */
  readonly origin: string;
  /** As the Host header names it. */
  readonly host: string;
  /** An IPv6 address has no brackets here. */
  readonly hostname: string;
  readonly port: number;
  readonly secure: boolean;
  /** The request target. */
  readonly path: string;
}

const MESSAGES = /^\/v1\/messages(?:[/?]|$)/;

/** Where the client's path is at the gateway. base_url has its own version, which replaces the client's /v1. */
export function findAddress(gateway: Gateway, path: string): Address {
  if (MESSAGES.test(path)) return joined(gateway.messagesUrl, path);
  if (path.startsWith("/v1beta/")) return joined(withoutVersion(gateway.baseUrl), path);
  return joined(gateway.baseUrl, path.slice("/v1".length));
}

/** The path is appended, never resolved: `new URL("//evil.com", base)` is evil.com. */
function joined(base: string, path: string): Address {
  const { origin, host, hostname, port, protocol, pathname } = new URL(base);
  const secure = protocol === "https:";
  return {
    origin,
    host,
    hostname: hostname.replace(/^\[|\]$/g, ""),
    port: Number(port) || (secure ? 443 : 80),
    secure,
    path: pathname.replace(/\/$/, "") + path,
  };
}
