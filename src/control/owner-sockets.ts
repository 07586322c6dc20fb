import { createServer, type Server } from "node:http";
import type { Problem } from "../core/display.ts";
import { errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import type { Caller } from "./reach.ts";
import type { Controls } from "./routes.ts";
import { answerWith, type ControlSockets } from "./server.ts";

/** The first descriptor that systemd passes. */
const FIRST_DESCRIPTOR = 3;
const NAME = /^owner-([A-Za-z_][\w.-]*)$/;

/** A socket that systemd made and passed. Only its user, and root, can open it. */
export interface PassedSocket {
  readonly descriptor: number;
  readonly caller: Caller;
}

/**
 * The control sockets that systemd passes: `root`, and `owner-NAME` for each owner. By their names, because their order differs
 * from start to start. A problem: keybearer was not started with them.
 */
export function passedSockets(env: NodeJS.ProcessEnv, pid: number): readonly PassedSocket[] | Problem {
  const { LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES = "" } = env;
  const count = Number(LISTEN_FDS ?? "0");
  const names = LISTEN_FDNAMES.split(":");
  if (LISTEN_PID !== String(pid) || !(count > 0) || names.length !== count)
    return {
      problem: "systemd passed no control sockets, and the system service makes none itself",
      next: null,
    };
  const sockets: PassedSocket[] = [];
  for (const [index, name] of names.entries()) {
    const descriptor = FIRST_DESCRIPTOR + index;
    const owner = NAME.exec(name)?.[1];
    if (name === "root") sockets.push({ descriptor, caller: { owner: null } });
    else if (owner !== undefined) sockets.push({ descriptor, caller: { owner } });
    else return { problem: `systemd passed a socket with an unknown name: ${name}`, next: null };
  }
  return sockets;
}

/** The daemon's end of the control sockets of a system service. The kernel decides who can open which. */
export class OwnerSockets implements ControlSockets {
  readonly #log: Logger;
  readonly #servers: Server[] = [];
  #controls: Controls | null = null;

  constructor(log: Logger) {
    this.#log = log;
  }

  async listen(sockets: readonly PassedSocket[]): Promise<void> {
    for (const { descriptor, caller } of sockets) {
      const server = createServer((req, res) =>
        answerWith(this.#controls, req, res, { caller, log: this.#log }),
      );
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen({ fd: descriptor }, () => {
          server.off("error", reject);
          resolve();
        });
      });
      server.on("error", (error) => this.#log.error(`a control socket failed: ${errorMessage(error)}`));
      this.#servers.push(server);
    }
  }

  serve(controls: Controls): void {
    this.#controls = controls;
  }

  /** systemd keeps the sockets, also while the service restarts. */
  async check(): Promise<void> {}

  async close(): Promise<void> {
    await Promise.all(
      this.#servers.map((server) => {
        const closed = new Promise<void>((resolve) => server.once("close", () => resolve()));
        server.close();
        server.closeAllConnections();
        return closed;
      }),
    );
  }
}
