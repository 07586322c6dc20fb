import { Counter, type Registry } from "prom-client";
import type { Call } from "../proxy/call.ts";
import type { Closing, RecordEnd } from "../usage/record.ts";
import { BoundedNames } from "./bounded.ts";

/** A client chooses the name of a model, so a tool has so many, and every further one is `other`. */
const MAX_MODELS = 100;

/** The finished requests of one tool, gateway and model. */
interface Series {
  readonly gateway: string;
  readonly model: string;
  readonly ends: Map<RecordEnd, number>;
  input: number;
  cacheRead: number;
  cacheWrite: number;
  output: number;
  /** null: no price is known for any of them. */
  microdollars: number | null;
}

/** The finished requests of one tool. */
class ToolCounts {
  readonly models = new BoundedNames(MAX_MODELS);
  /** By gateway, then by model. */
  readonly #series = new Map<string, Map<string, Series>>();
  readonly refusals = new Map<string, number>();

  find(gateway: string, model: string): Series {
    let ofGateway = this.#series.get(gateway);
    if (ofGateway === undefined) {
      ofGateway = new Map();
      this.#series.set(gateway, ofGateway);
    }
    let series = ofGateway.get(model);
    if (series === undefined) {
      const ends = new Map<RecordEnd, number>();
      series = { gateway, model, ends, input: 0, cacheRead: 0, cacheWrite: 0, output: 0, microdollars: null };
      ofGateway.set(model, series);
    }
    return series;
  }

  *all(): Generator<Series> {
    for (const ofGateway of this.#series.values()) yield* ofGateway.values();
  }
}

/**
 * Counts finished requests, by the values of their records. A later correction from a console changes the record but not
 * these counters: a counter that falls would look like a restart.
 *
 * They are plain numbers until somebody reads them: prom-client takes several microseconds for each counter of a request, and a
 * request has six.
 */
export class RequestCounts {
  readonly #tools = new Map<string, ToolCounts>();

  constructor(registry: Registry) {
    this.#addCounters(registry);
  }

  /** Called once for each request that has ended. */
  count(call: Call, closing: Closing): void {
    const tool = this.#tool(call.tool?.name ?? "");
    const { refusal, end } = closing;
    if (refusal !== null) tool.refusals.set(refusal, (tool.refusals.get(refusal) ?? 0) + 1);
    const model = call.tool === null ? null : (closing.model ?? closing.model_answered);
    const series = tool.find(call.gateway?.name ?? "", model === null ? "" : tool.models.label(model));
    if (end !== null) series.ends.set(end, (series.ends.get(end) ?? 0) + 1);
    series.input += closing.input_tokens ?? 0;
    series.cacheRead += closing.cache_read_tokens ?? 0;
    series.cacheWrite += closing.cache_write_tokens ?? 0;
    series.output += closing.output_tokens ?? 0;
    const cost = closing.cost_microdollars;
    if (cost !== null) series.microdollars = (series.microdollars ?? 0) + cost;
  }

  #tool(name: string): ToolCounts {
    let tool = this.#tools.get(name);
    if (tool === undefined) {
      tool = new ToolCounts();
      this.#tools.set(name, tool);
    }
    return tool;
  }

  #addCounters(registry: Registry): void {
    const registers = [registry];
    const tools = this.#tools;
    new Counter({
      name: "keybearer_requests_total",
      help: "Requests that have ended, by how they ended.",
      labelNames: ["tool", "gateway", "model", "end"],
      registers,
      collect() {
        this.reset();
        for (const [tool, counts] of tools)
          for (const { gateway, model, ends } of counts.all())
            for (const [end, count] of ends) this.inc({ tool, gateway, model, end }, count);
      },
    });
    new Counter({
      name: "keybearer_refusals_total",
      help: "Requests that keybearer refused or could not finish, by the code of the refusal.",
      labelNames: ["tool", "code"],
      registers,
      collect() {
        this.reset();
        for (const [tool, { refusals }] of tools)
          for (const [code, count] of refusals) this.inc({ tool, code }, count);
      },
    });
    new Counter({
      name: "keybearer_tokens_total",
      help: "Tokens of requests that have ended. The types add up; reasoning is part of the output.",
      labelNames: ["tool", "model", "type"],
      registers,
      collect() {
        this.reset();
        for (const [tool, counts] of tools) {
          for (const { model, input, cacheRead, cacheWrite, output } of counts.all()) {
            this.inc({ tool, model, type: "input" }, input);
            this.inc({ tool, model, type: "cache_read" }, cacheRead);
            this.inc({ tool, model, type: "cache_write" }, cacheWrite);
            this.inc({ tool, model, type: "output" }, output);
          }
        }
      },
    });
    new Counter({
      name: "keybearer_cost_dollars_total",
      help: "What these requests cost, as far as their prices are known.",
      labelNames: ["tool", "model"],
      registers,
      collect() {
        this.reset();
        for (const [tool, counts] of tools) {
          // Whole micro-dollars are added before they become dollars, so that the sum is exact.
          const byModel = new Map<string, number>();
          for (const { model, microdollars } of counts.all())
            if (microdollars !== null) byModel.set(model, (byModel.get(model) ?? 0) + microdollars);
          for (const [model, sum] of byModel) this.inc({ tool, model }, sum / 1_000_000);
        }
      },
    });
  }
}
