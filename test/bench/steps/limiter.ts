import type { Tool } from "../../../src/config/schema.ts";
import { type Lease, Limiter as Real } from "../../../src/limits/limiter.ts";

/** Admits every request and counts nothing. */
export class Limiter extends Real {
  override takeNow(tool: Tool): Lease {
    return { tool: tool.name, reservation: { tokens: 0, spend: 0, at: 0, ownAt: 0, id: null } };
  }

  override recorded(): void {}

  override settle(): void {}

  override noteTokens(): void {}

  override rateHeaders(): void {}
}
