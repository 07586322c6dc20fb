import type { Test } from "tap";
import { type GatewayCall, type RawGateway, startRawGateway } from "./raw-gateway.ts";

/** A gateway whose chat streams stop in the middle until they are released. It answers everything else at once. */
export interface PacedGateway extends RawGateway {
  /** Lets every stopped stream end. */
  release(): void;
}

const USAGE = { prompt_tokens: 12, completion_tokens: 3, total_tokens: 15 };
const PLAIN = JSON.stringify({ id: "chatcmpl-1", choices: [], data: [{ id: "priced" }], usage: USAGE });

const HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const event = (data: object) => `data: ${JSON.stringify({ id: "chatcmpl-1", ...data })}\n\n`;
const piece = (content: string) => event({ choices: [{ index: 0, delta: { content } }] });
const BEGINNING = piece("Good") + piece(" morning") + piece(".");
const FINISH = event({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }], usage: USAGE });
const ENDING = `${FINISH}data: [DONE]\n\n`;

/** What a client gets of a stream in the end. */
export const WHOLE_STREAM = BEGINNING + ENDING;

export async function startPacedGateway(t: Test): Promise<PacedGateway> {
  const stopped = new Set<GatewayCall>();
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    if (call.body().includes('"stream":true')) {
      call.send(HEAD + chunk(BEGINNING));
      stopped.add(call);
    } else call.ok(PLAIN);
  });
  return {
    ...gateway,
    release() {
      for (const call of stopped) call.send(`${chunk(ENDING)}0\r\n\r\n`);
      stopped.clear();
    },
  };
}

function chunk(text: string): string {
  return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
}
