import type { Tool } from "../../../src/config/schema.ts";
import type { Ask } from "../../../src/limits/counters.ts";
import { type Lease, Limiter as Real } from "../../../src/limits/limiter.ts";

/** Admits every request and counts nothing: all of them have one lease. */
export class Limiter extends Real {
  #lease: Lease | null = null;

  override takeNow(tool: Tool, ask: Ask): Lease | null {
    this.#lease ??= super.takeNow(tool, ask);
    return this.#lease;
  }

  override recorded(): void {}

  override settle(): void {}

  override noteTokens(): void {}

  override rateHeaders(): void {}
}
