import { request } from "node:http";
import type { Socket } from "node:net";
import { type SecureContext, connect as tlsConnect } from "node:tls";

export interface ConnectOptions {
  readonly host?: string;
  readonly port?: number | string;
  readonly servername?: string;
}

export interface TlsOptions {
  readonly rejectUnauthorized: true;
  readonly secureContext?: SecureContext;
}

/** A way out of a network that lets nothing out but through its proxy. */
export interface Tunnel {
  readonly proxy: string;
  /** null: the gateway is called by http. */
  readonly tls: TlsOptions | null;
  /** Milliseconds for the proxy's answer and TLS behind it together. */
  readonly patience: number;
}

export type Done = (error: Error | null, socket?: Socket) => void;

/** Always a tunnel, for http too: the proxy never sees a header, and with https not a byte of the key. */
export function connectThrough({ proxy, tls, patience }: Tunnel, options: ConnectOptions, done: Done): void {
  const authority = `${options.host?.includes(":") ? `[${options.host}]` : options.host}:${options.port}`;
  const asking = request(proxy, {
    method: "CONNECT",
    path: authority,
    headers: { host: authority },
    agent: false,
  });
  let tunnel: Socket | null = null;
  let over = false;
  const finish = (error: Error | null, socket?: Socket) => {
    if (over) return;
    over = true;
    clearTimeout(timer);
    if (error !== null) {
      asking.destroy();
      tunnel?.destroy();
    }
    done(error, socket);
  };
  const timer = setTimeout(() => finish(new Error(`the outbound proxy ${proxy} did not answer`)), patience);
  asking.on("error", (error: NodeJS.ErrnoException) =>
    finish(new Error(`the outbound proxy ${proxy} cannot be reached (${error.code ?? error.message})`)),
  );
  asking.once("connect", (answer, socket, head) => {
    tunnel = socket;
    if (over) return void socket.destroy();
    // Whatever the proxy sends first would be taken for the gateway's.
    if (answer.statusCode !== 200 || head.length > 0) {
      return finish(new Error(`the outbound proxy ${proxy} answered ${answer.statusCode} to CONNECT`));
    }
    if (tls !== null) secure(socket, tls, options, finish);
    else finish(null, socket);
  });
  asking.end();
}

function secure(
  socket: Socket,
  tls: TlsOptions,
  { host = "", servername = "" }: ConnectOptions,
  finish: Done,
): void {
  // An address has no server name, but its certificate is held against it all the same.
  const name = servername === "" ? { host } : { host, servername };
  const secured = tlsConnect({ socket, ...name, ...tls, ALPNProtocols: ["http/1.1"] });
  secured.once("error", finish);
  secured.once("secureConnect", () => {
    secured.off("error", finish);
    finish(null, secured);
  });
}
