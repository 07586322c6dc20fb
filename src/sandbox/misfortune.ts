import { type Exchange, sendJson, sendText } from "./exchange.ts";
import type { Fault } from "./faults.ts";
import { indexPage } from "./page.ts";

/** Plays a fault that takes the place of an answer. False when the request is to be answered after all. */
export async function playFault(exchange: Exchange, fault: Fault): Promise<boolean> {
  switch (fault.kind) {
    case "slow":
      return false;
    case "silence":
      if (!exchange.gone.aborted) {
        await new Promise<void>((resolve) => {
          exchange.gone.addEventListener("abort", () => resolve(), { once: true });
        });
      }
      return true;
    case "cut":
      if (fault.afterChunks !== undefined) return false;
      exchange.response.destroy();
      return true;
    case "refuse":
      sendRefused(exchange, fault);
      return true;
    case "garbage":
      sendGarbage(exchange, fault.what);
      return true;
    case "echo":
      sendJson(exchange, fault.status ?? 400, {
        error: {
          type: "invalid_request_error",
          message: `could not understand the request: ${exchange.entry.rawHeaders.join(" ")}`,
          headers: exchange.request.headers,
        },
      });
      return true;
  }
}

function sendRefused(exchange: Exchange, fault: Extract<Fault, { kind: "refuse" }>): void {
  const { status, body = "", headers = {} } = fault;
  if (typeof body === "string") sendText(exchange, status, "text/plain; charset=utf-8", body, headers);
  else sendJson(exchange, status, body, headers);
}

function sendGarbage(exchange: Exchange, what: "bytes" | "html" | "text"): void {
  switch (what) {
    case "bytes":
      exchange.response.socket?.end("\u0000\u0001 this is not an HTTP answer\r\n\r\n");
      return;
    case "html":
      sendText(exchange, 200, "text/html; charset=utf-8", indexPage);
      return;
    case "text":
      sendText(exchange, 200, "application/json; charset=utf-8", '{"object": "list", "data": [tru');
      return;
  }
}
