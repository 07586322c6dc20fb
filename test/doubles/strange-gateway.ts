import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";

/** Somebody who would like to have keys: takes every request, counts it, and answers when it may. */
export async function startListener(
  t: Test,
  may: () => Promise<void> = async () => {},
): Promise<{ readonly baseUrl: string; readonly requests: () => number }> {
  let requests = 0;
  const server = createServer(async (_request, response) => {
    requests += 1;
    await may();
    response.setHeader("content-type", "application/json");
    response.end('{"object":"list","data":[{"id":"m","object":"model"}]}');
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { baseUrl: `http://127.0.0.1:${port}/v1`, requests: () => requests };
}
