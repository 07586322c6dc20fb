import type { Duplex } from "node:stream";
import { answerUnparsable } from "./answer.ts";
import { NOTHING_SENT } from "./exchange.ts";
import type { HandleMeans } from "./means.ts";
import { openRequest } from "./request.ts";
import { settle } from "./settle.ts";

/** Bytes that Node's parser refuses: nothing of them is known, but that they were refused is written down. */
export function handleUnparsable(error: NodeJS.ErrnoException, socket: Duplex, means: HandleMeans): void {
  const request = openRequest({ method: "", url: "", headers: {} }, means.snapshot(), means.clock);
  const told = answerUnparsable(error, socket, request.id);
  if (told !== null) settle(request, { ...NOTHING_SENT, ...told }, means);
}
