import type { Metrics as MetricsConfig } from "../config/schema.ts";
import type { MetricsStatus } from "../control/status.ts";
import { errorCode, errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import type { PeerLookup } from "../core/peer-user.ts";
import { SidePortRetry } from "../proxy/server.ts";
import type { Exporter } from "./exporter.ts";
import type { GaugeDeps } from "./gauges.ts";
import { MetricsServer } from "./server.ts";

interface MetricsDeps extends GaugeDeps {
  readonly log: Logger;
  readonly peers: PeerLookup;
}

/** Between two attempts at a taken port. */
const RETRY_MS = 10_000;

/**
 * Metrics for Prometheus, while config.yaml has `metrics:`. Without it there is no port, prom-client is not loaded, and a
 * request finds null here.
 */
export class Metrics {
  readonly #deps: MetricsDeps;
  #exporter: Exporter | null = null;
  #server: MetricsServer | null = null;
  readonly #retry: SidePortRetry;
  #isStopped = false;
  #lastTask: Promise<unknown> = Promise.resolve();

  constructor(deps: MetricsDeps, retryMs = RETRY_MS) {
    this.#deps = deps;
    this.#retry = new SidePortRetry("the port of the metrics", deps.log, () => this.applyConfig(), retryMs);
  }

  /** Counts what happens; null: `metrics:` is off. It stays the same while only the port or the token change. */
  get exporter(): Exporter | null {
    return this.#exporter;
  }

  /** Opens or closes the port as the configuration says. Tools are served whether or not that works. */
  applyConfig(): Promise<void> {
    return this.#inTurn(async () => {
      const wanted = this.#isStopped ? null : this.#deps.snapshot().config.metrics;
      if (this.#server !== null && !this.#server.isOn(wanted?.listen ?? null)) await this.#close();
      if (wanted === null) {
        this.#retry.end();
        this.#exporter = null;
        return;
      }
      try {
        await this.#open(wanted);
        this.#retry.end();
      } catch (error) {
        this.#retry.later(describe(error));
      }
    });
  }

  /** null: `metrics:` is off. */
  status(): MetricsStatus | null {
    if (this.#deps.snapshot().config.metrics === null) return null;
    return { address: this.#server?.url ?? null, why: this.#retry.problem };
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.applyConfig();
  }

  async #open({ listen }: MetricsConfig): Promise<void> {
    if (this.#exporter === null) {
      // Loaded on first use: prom-client takes 9 MB.
      const { Exporter } = await import("./exporter.ts");
      this.#exporter = new Exporter(this.#deps);
    }
    if (this.#server !== null) return;
    const { log, peers, snapshot } = this.#deps;
    const tokenHash = () => snapshot().config.metrics?.token ?? null;
    const server = new MetricsServer({ log, peers, tokenHash, exporter: this.#exporter });
    await server.open(listen);
    this.#server = server;
    log.info(`metrics can be read at ${server.url}`);
  }

  async #close(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    await server?.close();
    this.#deps.log.info("closed the port of the metrics");
  }

  /** Runs one task at a time: opening and closing must not overlap. */
  #inTurn(task: () => Promise<void>): Promise<void> {
    const result = this.#lastTask.then(task);
    // The next task starts whether or not this one failed; its caller gets the error.
    this.#lastTask = result.catch(() => {});
    return result;
  }
}

function describe(error: unknown): string {
  // After an update of a running daemon, its packages may be gone.
  if (errorCode(error) === "ERR_MODULE_NOT_FOUND")
    return "the package prom-client is not there. restart keybearer";
  return errorMessage(error);
}
