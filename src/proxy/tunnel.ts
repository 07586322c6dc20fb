import { request } from "node:http";
import type { Socket } from "node:net";
import { type SecureContext, connect as tlsConnect } from "node:tls";

export interface TlsOptions {
  readonly rejectUnauthorized: true;
  readonly secureContext: SecureContext;
}

/** How a gateway is reached through an outbound proxy. */
export interface Tunnel {
  readonly proxy: string;
  /** null: the gateway is called by http. */
  readonly tls: TlsOptions | null;
  /** For the proxy's answer and the TLS handshake together. */
  readonly timeoutMs: number;
}

export interface TunnelTarget {
  readonly host?: string | null | undefined;
  readonly port?: number | string | null | undefined;
  readonly servername?: string | undefined;
}

export type Done = (error: Error | null, socket?: Socket) => void;

/** Always by CONNECT, also for http: the proxy never sees a header, and with https no byte of the key. */
export function connectThrough(tunnel: Tunnel, target: TunnelTarget, done: Done): void {
  const { proxy, tls, timeoutMs } = tunnel;
  const host = target.host ?? "";
  const authority = `${host.includes(":") ? `[${host}]` : host}:${target.port}`;
  const asking = request(proxy, {
    method: "CONNECT",
    path: authority,
    headers: { host: authority },
    agent: false,
  });
  let connection: Socket | null = null;
  let isDone = false;
  const finish = (error: Error | null, socket?: Socket) => {
    if (isDone) return;
    isDone = true;
    clearTimeout(timer);
    if (error !== null) {
      asking.destroy();
      connection?.destroy();
    }
    done(error, socket);
  };
  const timer = setTimeout(() => finish(new Error(`the outbound proxy ${proxy} did not answer`)), timeoutMs);
  asking.on("error", (error: NodeJS.ErrnoException) =>
    finish(new Error(`the outbound proxy ${proxy} cannot be reached (${error.code ?? error.message})`)),
  );
  asking.once("connect", (answer, socket, head) => {
    connection = socket;
    if (isDone) {
      socket.destroy();
      return;
    }
    // Bytes behind the proxy's answer would be taken for the gateway's.
    if (answer.statusCode !== 200 || head.length > 0) {
      finish(new Error(`the outbound proxy ${proxy} answered ${answer.statusCode} to CONNECT`));
      return;
    }
    if (tls === null) finish(null, socket);
    else startTls(socket, tls, host, target.servername, finish);
  });
  asking.end();
}

function startTls(
  socket: Socket,
  tls: TlsOptions,
  host: string,
  servername: string | undefined,
  done: Done,
): void {
  // An IP address has no server name, but the certificate is checked against it all the same.
  const name = servername ? { host, servername } : { host };
  const secured = tlsConnect({ socket, ...name, ...tls, ALPNProtocols: ["http/1.1"] });
  secured.once("error", done);
  secured.once("secureConnect", () => {
    secured.off("error", done);
    done(null, secured);
  });
}
