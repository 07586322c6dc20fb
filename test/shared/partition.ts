import { connect, createServer, type Socket } from "node:net";
import type { Test } from "tap";
import { listen } from "../doubles/listen.ts";

/**
 * pass: bytes go through, `delay` ms later.
 * cut: connections are reset, and new ones are, too.
 * black-hole: connections stay open, and every byte gets lost. They are reset when this ends.
 * stall: connections stay open, and every byte arrives when this ends, as after a short network failure.
 */
export type PartitionMode = "pass" | "cut" | "black-hole" | "stall";

/** A TCP proxy between one machine and the store, which the test can interrupt. */
export class Partition {
  readonly #target: number;
  readonly #links = new Set<Link>();
  #port = 0;
  #mode: PartitionMode = "pass";
  #delay = 0;
  /** Milliseconds that the machine sees the store's clock ahead, for tests in which time passes faster. */
  storeAhead = 0;

  private constructor(target: number) {
    this.#target = target;
  }

  /** @param target the store's port */
  static async start(t: Test, target: number): Promise<Partition> {
    const partition = new Partition(target);
    // A link outlives a side that has closed, because bytes may still be on their way.
    const server = createServer({ allowHalfOpen: true }, (socket) => partition.#accept(socket));
    partition.#port = (await listen(t, server)).port;
    t.teardown(() => partition.set("cut"));
    return partition;
  }

  get port(): number {
    return this.#port;
  }

  get mode(): PartitionMode {
    return this.#mode;
  }

  /** @param delay milliseconds that each byte takes, in both directions */
  set(mode: PartitionMode, delay = 0): void {
    const wasBlackHole = this.#mode === "black-hole";
    this.#mode = mode;
    this.#delay = delay;
    for (const link of this.#links) {
      if (mode === "cut" || wasBlackHole) link.reset();
      else link.pump();
    }
  }

  #accept(client: Socket): void {
    if (this.#mode === "cut") {
      client.resetAndDestroy();
      return;
    }
    const network = () => ({ mode: this.#mode, delay: this.#delay, storeAhead: this.storeAhead });
    const link = new Link(client, this.#target, network);
    this.#links.add(link);
    client.once("close", () => {
      if (link.isOver) this.#links.delete(link);
    });
  }
}

interface Network {
  readonly mode: PartitionMode;
  readonly delay: number;
  readonly storeAhead: number;
}

interface Held {
  /** null: the sender closed its side. */
  readonly chunk: Buffer | null;
  readonly due: number;
}

/** In Node 20 to 26, a process never ends if it resets a socket that is still sending its end. */
function resetSocket(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

/** Two connections with the bytes that are on their way between them. */
class Link {
  readonly #client: Socket;
  readonly #target: number;
  readonly #network: () => Network;
  #store: Socket | null = null;
  readonly #toStore: Held[] = [];
  readonly #toClient: Held[] = [];

  constructor(client: Socket, target: number, network: () => Network) {
    this.#client = client;
    this.#target = target;
    this.#network = network;
    this.#listen(client, this.#toStore);
    this.pump();
  }

  get isOver(): boolean {
    return this.#client.destroyed && (this.#store?.destroyed ?? true) && this.#toStore.length === 0;
  }

  reset(): void {
    this.#toStore.length = 0;
    this.#toClient.length = 0;
    resetSocket(this.#client);
    if (this.#store !== null) resetSocket(this.#store);
  }

  /** Sends what is due. */
  pump(): void {
    const { mode } = this.#network();
    if (mode !== "pass") return;
    this.#store ??= this.#connect();
    send(this.#toStore, this.#store);
    send(this.#toClient, this.#client);
  }

  #connect(): Socket {
    const store = connect({ port: this.#target, host: "127.0.0.1", allowHalfOpen: true });
    this.#listen(store, this.#toClient, (answer) => moveClock(answer, this.#network().storeAhead));
    return store;
  }

  /** A killed program's connection ends with an error or without one. The other side sees the same end. */
  #listen(from: Socket, held: Held[], change = (chunk: Buffer) => chunk): void {
    let hasEnded = false;
    const end = () => {
      if (hasEnded) return;
      hasEnded = true;
      this.#hold(held, null);
    };
    from.on("data", (chunk: Buffer) => this.#hold(held, change(chunk)));
    from.on("error", end);
    from.once("end", end);
    from.once("close", end);
  }

  #hold(held: Held[], chunk: Buffer | null): void {
    const { mode, delay } = this.#network();
    if (mode === "black-hole") return;
    held.push({ chunk, due: performance.now() + delay });
    if (delay === 0) this.pump();
    else setTimeout(() => this.pump(), delay);
  }
}

function send(held: Held[], to: Socket): void {
  // A timer may fire a little early.
  const now = performance.now() + 1;
  for (let first = held[0]; first !== undefined && first.due <= now; first = held[0]) {
    held.shift();
    if (first.chunk === null) to.end();
    else if (to.writable) to.write(first.chunk);
  }
}

/** Every script answers with the store's time. The new one has as many digits, so the length of the answer stays. */
function moveClock(answer: Buffer, milliseconds: number): Buffer {
  if (milliseconds === 0) return answer;
  const text = answer.toString("latin1");
  const moved = text.replace(/"time":(\d{13})\b/g, (_, time) => `"time":${Number(time) + milliseconds}`);
  return Buffer.from(moved, "latin1");
}
