import type { Server } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";

export interface Thief {
  readonly url: string;
  readonly seen: readonly string[];
}

/** Another origin that books everything that is shown to it, and answers as if all were well. */
export async function startThief(t: Test): Promise<Thief> {
  const seen: string[] = [];
  const server = createServer((req, res) => {
    seen.push(`${req.method} ${req.url}`);
    for (let i = 0; i + 1 < req.rawHeaders.length; i += 2) {
      seen.push(`${req.rawHeaders[i]}: ${req.rawHeaders[i + 1]}`);
    }
    req.on("data", (chunk: Buffer) => seen.push(chunk.toString("latin1")));
    res.writeHead(200, { "content-type": "application/json" });
    res.end('{"code":0,"success":true,"message":"success","data":{"items":[],"total":0}}');
  });
  return { url: await listen(t, server), seen };
}

/** Starts a server on a free port, ended with the test. Its origin. */
export async function listen(t: Test, server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
