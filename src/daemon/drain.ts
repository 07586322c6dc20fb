import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import { withTimeout } from "../core/timeout.ts";
import type { InFlight } from "../proxy/in-flight.ts";
import type { DataPort } from "./data-port.ts";

/** The log says this often how many requests a stop waits for. */
const PROGRESS_MS = 10_000;
/** Requests whose connection was cut end within milliseconds, unless there is a bug. */
const AFTER_CUT_MS = 5000;

interface DrainDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly port: Pick<DataPort, "drain" | "cut">;
  readonly inFlight: Pick<InFlight, "size" | "cutAll">;
}

/** A stop lets requests in flight finish for a while, then cuts them. */
export class Drain {
  readonly #deps: DrainDeps;
  /** By clock.elapsed(). null: nothing stops. */
  #endsAt: number | null = null;

  constructor(deps: DrainDeps) {
    this.#deps = deps;
  }

  /** From now on new requests are refused. */
  begin(timeoutMs: number): void {
    this.#endsAt = this.#deps.clock.elapsed() + timeoutMs;
  }

  /** null: nothing stops. */
  leftSeconds(): number | null {
    return this.#endsAt === null ? null : Math.ceil(this.#leftMs() / 1000);
  }

  /** What is left of the time since begin(). Throws if a request does not end even when it is cut. */
  async finish(): Promise<void> {
    const { log, port, inFlight } = this.#deps;
    const drained = port.drain().then(() => true);
    for (let leftMs = this.#leftMs(); leftMs > 0; leftMs -= PROGRESS_MS) {
      if (inFlight.size > 0) log.info(drainProgress(inFlight.size, Math.ceil(leftMs / 1000)));
      if (await withTimeout(drained, Math.min(leftMs, PROGRESS_MS), false)) return;
    }
    this.cut();
    if (!(await withTimeout(drained, AFTER_CUT_MS, false)))
      throw new Error("some requests did not end when they were cut");
  }

  /** Cuts the requests in flight. */
  cut(): void {
    this.#deps.inFlight.cutAll();
    this.#deps.port.cut();
  }

  #leftMs(): number {
    return Math.max(0, (this.#endsAt ?? 0) - this.#deps.clock.elapsed());
  }
}

function drainProgress(count: number, seconds: number): string {
  return `waiting for ${count} ${count === 1 ? "request" : "requests"}, ${seconds} s left`;
}
