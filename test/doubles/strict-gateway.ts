import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import type { Test } from "tap";
import { GatewayCall } from "./raw-gateway.ts";

/**
 * A gateway that reads each request by its own framing to the last byte, chunk by chunk, however the bytes arrive: what
 * it takes for the next request is what any careful server would. It keeps no bodies.
 */
export interface StrictGateway {
  readonly origin: string;
  readonly calls: readonly GatewayCall[];
}

export async function startStrictGateway(
  t: Test,
  onCall: (call: GatewayCall, tunnel: () => void) => void,
  onBroken: (why: string) => void,
): Promise<StrictGateway> {
  const calls: GatewayCall[] = [];
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    connections += 1;
    const connection = connections;
    sockets.add(socket);
    socket.setMaxListeners(0);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("end", () => socket.end());
    let open = true;
    const reader = createReader(
      (head) => {
        const call = new GatewayCall(socket, connection, head);
        calls.push(call);
        onCall(call, () => {
          open = false;
        });
        return call;
      },
      (why) => {
        open = false;
        onBroken(why);
        socket.destroy();
      },
    );
    socket.on("data", (chunk: Buffer) => {
      // What follows a 101 is no request, whatever it looks like.
      if (open) reader(chunk.toString("latin1"), () => open);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return { origin: `http://127.0.0.1:${port}`, calls };
}

type State = "head" | "bytes" | "size" | "after chunk" | "trailers";

const NOTHING = Buffer.alloc(0);

function createReader(onHead: (head: string) => GatewayCall, broken: (why: string) => void) {
  let text = "";
  let state: State = "head";
  let left = 0;
  let chunked = false;
  let call: GatewayCall | null = null;
  const finish = () => {
    call?.take(NOTHING, true, false);
    call = null;
    state = "head";
  };
  const takeHead = (head: string) => {
    call = onHead(head);
    chunked = call.header("transfer-encoding").length > 0;
    left = Number(call.header("content-length")[0] ?? 0);
    if (chunked) state = "size";
    else if (left > 0) state = "bytes";
    else finish();
  };
  const takeLine = (line: string) => {
    if (state === "head") takeHead(line);
    else if (state === "after chunk") {
      if (line !== "") broken(`behind a chunk stands ${JSON.stringify(line)}`);
      state = "size";
    } else if (state === "size") {
      if (!/^[0-9a-f]+$/i.test(line)) broken(`${JSON.stringify(line)} is no size of a chunk`);
      left = Number.parseInt(line, 16);
      state = left === 0 ? "trailers" : "bytes";
    } else if (line === "") finish();
  };
  return (arrived: string, open: () => boolean): void => {
    text += arrived;
    while (open() && text !== "") {
      if (state === "bytes") {
        const taken = Math.min(left, text.length);
        text = text.slice(taken);
        left -= taken;
        if (left > 0) return;
        if (chunked) state = "after chunk";
        else finish();
        continue;
      }
      const end = state === "head" ? "\r\n\r\n" : "\r\n";
      const at = text.indexOf(end);
      if (at === -1) return;
      const line = text.slice(0, at);
      text = text.slice(at + end.length);
      takeLine(line);
    }
  };
}
