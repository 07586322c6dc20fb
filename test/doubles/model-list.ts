import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";

/** A gateway that lists its models for these keys, refuses all others, and remembers which keys it was sent. */
export async function startModelList(
  t: Test,
  ...keys: readonly string[]
): Promise<{ readonly origin: string; readonly seen: Set<string> }> {
  const seen = new Set<string>();
  const server = createServer((request, response) => {
    const { authorization = "", "x-api-key": key } = request.headers;
    const given = String(key ?? authorization.replace(/^Bearer /, ""));
    seen.add(given);
    const isKnown = keys.includes(given);
    response.writeHead(isKnown ? 200 : 401, { "content-type": "application/json" });
    response.end(
      isKnown
        ? '{"data":[{"id":"gpt-5.1"},{"id":"claude-sonnet-4-5"}]}'
        : '{"error":{"message":"invalid key"}}',
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}
