import type { Test } from "tap";
import { openRaw, parsed, type RawClient } from "../doubles/raw-client.ts";
import type { Heard } from "../doubles/stimulus.ts";
import { HANG_MS } from "../doubles/until.ts";

/**
 * Sends requests one after the other on one connection, and opens another one after the daemon closed it. For tables with
 * many rows: for each new connection the daemon reads the kernel's table of all connections. Answers need a Content-Length.
 */
export function keepConnection(t: Test, port: number): (bytes: string | Buffer) => Promise<Heard> {
  let kept: RawClient | null = null;
  return async function ask(bytes) {
    const isNew = kept === null || kept.isClosed();
    const client = kept === null || kept.isClosed() ? await openRaw(t, port) : kept;
    kept = client;
    const from = client.size();
    client.send(bytes);
    const answer = await answerAfter(client, from);
    if (answer !== null) return { client, ...answer };
    if (isNew) throw new Error(`no answer to ${JSON.stringify(String(bytes).slice(0, 200))}`);
    // The daemon closes a connection that was idle for a while.
    return ask(bytes);
  };
}

/** The answer that comes after this many bytes. null: the connection closed before. */
function answerAfter(
  { socket, text, isClosed }: RawClient,
  from: number,
): Promise<ReturnType<typeof parsed> | null> {
  return new Promise((resolve, reject) => {
    const events = ["data", "end", "close"];
    const timer = setTimeout(() => reject(new Error(`no answer within ${HANG_MS} ms`)), HANG_MS);
    const check = () => {
      const answer = wholeAnswer(text().slice(from));
      if (answer === null && !isClosed()) return;
      clearTimeout(timer);
      for (const event of events) socket.off(event, check);
      resolve(answer);
    };
    for (const event of events) socket.on(event, check);
    check();
  });
}

function wholeAnswer(text: string): ReturnType<typeof parsed> | null {
  if (!text.includes("\r\n\r\n")) return null;
  const answer = parsed(text);
  return answer.body.length >= Number(answer.headers["content-length"]) ? answer : null;
}
