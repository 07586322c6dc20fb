import { type Counter, Registry } from "prom-client";
import type { ShownVerdict } from "../mirror/verdict.ts";
import type { Call } from "../proxy/call.ts";
import type { Closing } from "../usage/record.ts";
import { addGauges, createRowCounter, type GaugeDeps } from "./gauges.ts";
import { Operations } from "./operations.ts";
import { RequestCounts } from "./request-counts.ts";

/** All metrics. They count from when this is made, which is the start of the daemon or of `metrics:`. */
export class Exporter {
  readonly contentType: string;
  readonly #registry = new Registry();
  readonly #requests: RequestCounts;
  readonly #operations = new Operations();
  readonly #rows: Counter;
  readonly #snapshot: GaugeDeps["snapshot"];
  #writing: Promise<string> | null = null;

  constructor(deps: GaugeDeps) {
    this.contentType = this.#registry.contentType;
    addGauges(this.#registry, deps);
    this.#requests = new RequestCounts(this.#registry);
    this.#rows = createRowCounter(this.#registry);
    this.#snapshot = deps.snapshot;
  }

  countRequest(call: Call, closing: Closing): void {
    this.#requests.count(call, closing);
    this.#operations.observe(call, closing);
  }

  countRows(gateway: string, counts: Readonly<Partial<Record<ShownVerdict, number>>>): void {
    for (const [verdict, count] of Object.entries(counts)) this.#rows.inc({ gateway, verdict }, count);
  }

  /** The text of a scrape. Scrapes at the same time share one. */
  write(): Promise<string> {
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = null;
    });
    return this.#writing;
  }

  async #writeAll(): Promise<string> {
    this.#addAlarms();
    return `${await this.#registry.metrics()}\n${this.#operations.write()}`;
  }

  /** From 0 on: Prometheus sees no increase in a series that begins with 1. */
  #addAlarms(): void {
    for (const { name, console } of Object.values(this.#snapshot().config.gateways)) {
      if (console === null) continue;
      for (const verdict of ["foreign", "suspected"] as const) this.#rows.inc({ gateway: name, verdict }, 0);
    }
  }
}
