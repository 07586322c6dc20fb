import { get } from "node:http";

/** What a request for `/healthz` at one address showed. */
export type Health =
  /** 200. */
  | "ok"
  /** Nothing listens there. */
  | "refused"
  /** No connection, or one that was closed at once: all are in use, or the address is gone. Says nothing about the daemon. */
  | "unreachable"
  /** It accepted the connection, and gave no answer in time or a wrong one. */
  | "silent";

/** Whether keybearer answers at all of these addresses, such as `127.0.0.1:5397` and `[::1]:5397`. */
export async function isHealthy(addresses: readonly string[], timeoutMs: number): Promise<boolean> {
  const results = await probeHealth(addresses, timeoutMs);
  return results.length > 0 && results.every((health) => health === "ok");
}

/**
 * Whether a daemon that probed its own addresses should be restarted. Any local program can take all of its connections, and
 * an address can disappear (a VPN that switches IPv6 off): a restart fixes neither.
 */
export function isHung(results: readonly Health[]): boolean {
  if (results.includes("silent")) return true;
  return results.includes("refused") && !results.includes("ok");
}

export function probeHealth(addresses: readonly string[], timeoutMs: number): Promise<Health[]> {
  return Promise.all(addresses.map((address) => probe(address, timeoutMs)));
}

function probe(address: string, timeoutMs: number): Promise<Health> {
  return new Promise((resolve) => {
    let connected = false;
    // Without an agent: a connection that is kept open does not show whether new ones are accepted.
    const request = get(`http://${address}/healthz`, { agent: false }, (response) => {
      clearTimeout(timer);
      response.resume();
      response.once("close", () => resolve(response.statusCode === 200 ? "ok" : "silent"));
    });
    const timer = setTimeout(() => {
      resolve(connected ? "silent" : "unreachable");
      request.destroy();
    }, timeoutMs);
    request.once("socket", (socket) => {
      socket.once("connect", () => {
        connected = true;
      });
    });
    request.once("error", (error: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      resolve(error.code === "ECONNREFUSED" ? "refused" : "unreachable");
    });
  });
}
