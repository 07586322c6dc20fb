import { get } from "node:http";

/** What came of asking `/healthz` at one address. */
export type Answer =
  /** 200. */
  | "well"
  /** Nobody listens there. */
  | "refused"
  /** No connection, or one that was closed at once: all are taken, or the address is gone. Says nothing of the daemon. */
  | "unreachable"
  /** It took the request, and gave no answer in time or a wrong one. */
  | "silent";

/** Whether keybearer answers `/healthz` at every one of these addresses, as `127.0.0.1:5397` and `[::1]:5397`. */
export async function answersAt(addresses: readonly string[], limitMs: number): Promise<boolean> {
  const answers = await askAt(addresses, limitMs);
  return answers.length > 0 && answers.every((answer) => answer === "well");
}

/**
 * Whether a daemon that asks itself at its own addresses should be ended. Anybody on the machine can take all of its
 * connections, and an address can go while it runs (a VPN that switches IPv6 off): neither is mended by a new start.
 */
export function hangs(answers: readonly Answer[]): boolean {
  if (answers.includes("silent")) return true;
  return answers.includes("refused") && !answers.includes("well");
}

export function askAt(addresses: readonly string[], limitMs: number): Promise<Answer[]> {
  return Promise.all(addresses.map((address) => ask(address, limitMs)));
}

function ask(address: string, limitMs: number): Promise<Answer> {
  return new Promise((done) => {
    let connected = false;
    // A connection of its own each time: one that is kept open says nothing about whether new ones are accepted.
    const request = get(`http://${address}/healthz`, { agent: false }, (response) => {
      clearTimeout(limit);
      response.resume();
      response.once("close", () => done(response.statusCode === 200 ? "well" : "silent"));
    });
    const limit = setTimeout(() => {
      done(connected ? "silent" : "unreachable");
      request.destroy();
    }, limitMs);
    request.once("socket", (socket) => {
      socket.once("connect", () => {
        connected = true;
      });
    });
    request.once("error", (error: NodeJS.ErrnoException) => {
      clearTimeout(limit);
      done(error.code === "ECONNREFUSED" ? "refused" : "unreachable");
    });
  });
}
