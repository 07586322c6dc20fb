import type { IncomingMessage } from "node:http";

/**
 * The body of a message; null: it is longer than this, and its connection is closed. Throws if the connection breaks.
 * @param keepOpen to answer also one that is too long
 */
export async function readWhole(
  message: IncomingMessage,
  maxBytes: number,
  keepOpen = false,
): Promise<string | null> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of message.iterator({ destroyOnReturn: !keepOpen }) as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
