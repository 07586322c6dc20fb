import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as wait } from "node:timers/promises";
import type { Test } from "tap";
import { listen } from "../doubles/listen.ts";

/** One request as it reached the gateway. */
export interface Arrival {
  readonly tool: string;
  /** As the client names it in `x-machine`. */
  readonly machine: string;
  readonly at: number;
}

/** What the gateway does with a request, as its header `x-play` says. */
export type Play =
  /** Answers at once and reports what was used. */
  | "report"
  /** Answers at once and reports nothing. */
  | "silent"
  /** Streams for a moment. */
  | "stream"
  /** Streams until release(). */
  | "hold";

const event = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;
const WORD = event({ model: "penny", choices: [{ index: 0, delta: { content: "one" } }] });
const DONE = "data: [DONE]\n\n";
/** The events of a short stream, and the pause before each. */
const WORDS = 4;
const WORD_MS = 25;

/** The one gateway of all machines. It records every arrival, and how many requests of a tool are in flight. */
export class GatewayDouble {
  readonly arrivals: Arrival[] = [];
  readonly #tools: ReadonlyMap<string, string>;
  readonly #inFlight = new Map<string, number>();
  readonly #most = new Map<string, number>();
  readonly #held: (() => void)[] = [];
  #origin = "";

  /** @param keys the key of each tool */
  private constructor(keys: Readonly<Record<string, string>>) {
    this.#tools = new Map(Object.entries(keys).map(([tool, key]) => [`Bearer ${key}`, tool]));
  }

  static async start(t: Test, keys: Readonly<Record<string, string>>): Promise<GatewayDouble> {
    const gateway = new GatewayDouble(keys);
    const server = createServer((request, response) => gateway.#serve(request, response));
    // A kept connection must not end just when a machine uses it again.
    server.keepAliveTimeout = 600_000;
    gateway.#origin = (await listen(t, server)).origin;
    return gateway;
  }

  get baseUrl(): string {
    return `${this.#origin}/v1`;
  }

  inFlight(tool: string): number {
    return this.#inFlight.get(tool) ?? 0;
  }

  /** The most requests of the tool there ever were at once. */
  most(tool: string): number {
    return this.#most.get(tool) ?? 0;
  }

  /** Ends every stream that is held. */
  release(): void {
    for (const end of this.#held.splice(0)) end();
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const tool = this.#tools.get(request.headers.authorization ?? "") ?? "unknown key";
    this.arrivals.push({ tool, machine: String(request.headers["x-machine"]), at: Date.now() });
    this.#inFlight.set(tool, this.inFlight(tool) + 1);
    this.#most.set(tool, Math.max(this.most(tool), this.inFlight(tool)));
    let isOver = false;
    const over = () => {
      if (isOver) return;
      isOver = true;
      this.#inFlight.set(tool, this.inFlight(tool) - 1);
    };
    // Machines are killed on purpose.
    request.on("error", () => {});
    response.on("error", () => {});
    response.once("close", over);
    request.resume();
    request.once("end", () => {
      // Counted before the last byte leaves: a machine that has it may send the next request.
      this.#play(request, response, over).catch(() => response.destroy());
    });
  }

  async #play(request: IncomingMessage, response: ServerResponse, over: () => void): Promise<void> {
    const play = String(request.headers["x-play"]) as Play;
    const output = Number(request.headers["x-output"] ?? 0);
    const usage = { prompt_tokens: 7, completion_tokens: output, total_tokens: 7 + output };
    if (play === "report" || play === "silent") {
      response.writeHead(200, { "content-type": "application/json" });
      over();
      response.end(JSON.stringify({ model: "penny", choices: [], ...(play === "report" ? { usage } : {}) }));
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (let word = 0; word < WORDS; word += 1) {
      response.write(WORD);
      if (play === "stream") await wait(WORD_MS);
    }
    if (play === "hold") await new Promise<void>((resolve) => this.#held.push(resolve));
    over();
    response.end(event({ choices: [], usage }) + DONE);
  }
}
