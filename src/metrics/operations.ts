import { STATUS_CODES } from "node:http";
import type { Protocol } from "../core/refusal.ts";
import type { Metering } from "../metering/protocols.ts";
import type { Call } from "../proxy/call.ts";
import type { Closing } from "../usage/record.ts";
import { OTHER } from "./bounded.ts";

/*
 * The two histograms of the OpenTelemetry conventions for GenAI clients. They are counted and written here: prom-client takes
 * 20 µs to observe the three values of a request, this takes 1 µs.
 */

/** The conventions' buckets: 1 to 67 million tokens, and 10 ms to 82 s. */
const TOKEN_BUCKETS = Array.from({ length: 14 }, (_, power) => 4 ** power);
const SECONDS_BUCKETS = Array.from({ length: 14 }, (_, power) => 2 ** power / 100);

/** A client chooses the name of a model, and a gateway that of the one that answers. */
const MAX_OPERATIONS = 100;

type Labels = Readonly<Record<string, string>>;

class Buckets {
  readonly #limits: readonly number[];
  readonly #counts: number[];
  #sum = 0;

  constructor(limits: readonly number[]) {
    this.#limits = limits;
    // The last one has what is above all limits.
    this.#counts = [...limits.map(() => 0), 0];
  }

  observe(value: number): void {
    const limits = this.#limits;
    let at = 0;
    while (at < limits.length && value > (limits[at] ?? 0)) at += 1;
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
    this.#sum += value;
  }

  /** The lines of the text format; none if nothing was observed. */
  write(name: string, labels: Labels): string[] {
    const inner = labelText(labels);
    const lines: string[] = [];
    let count = 0;
    for (const [at, limit] of this.#limits.entries()) {
      count += this.#counts[at] ?? 0;
      lines.push(`${name}_bucket{le="${limit}",${inner}} ${count}`);
    }
    count += this.#counts.at(-1) ?? 0;
    if (count === 0) return [];
    lines.push(`${name}_bucket{le="+Inf",${inner}} ${count}`);
    lines.push(`${name}_sum{${inner}} ${this.#sum}`, `${name}_count{${inner}} ${count}`);
    return lines;
  }
}

/** The requests with the same operation, protocol and models. */
interface Operation {
  readonly labels: Labels;
  readonly input: Buckets;
  readonly output: Buckets;
  /** By error_type; empty: it went well. */
  readonly seconds: Map<string, Buckets>;
}

export class Operations {
  readonly #operations = new Map<string, Operation>();

  /** A request has ended. One that was not sent, or that the conventions have no name for, is left out. */
  observe({ metering, protocol, endpoint }: Call, closing: Closing): void {
    const { sent_at: sentAt, ended_at: endedAt, model, model_answered: answered } = closing;
    const name = operationName(metering, endpoint);
    if (name === null || sentAt === null || endedAt === null) return;
    const operation = this.#find(name, protocol, model, answered);
    const error = errorType(closing);
    let seconds = operation.seconds.get(error);
    if (seconds === undefined) {
      seconds = new Buckets(SECONDS_BUCKETS);
      operation.seconds.set(error, seconds);
    }
    seconds.observe(Math.max(0, endedAt - sentAt) / 1000);
    const { input_tokens: input, output_tokens: output } = closing;
    if (input !== null)
      operation.input.observe(input + (closing.cache_read_tokens ?? 0) + (closing.cache_write_tokens ?? 0));
    if (output !== null) operation.output.observe(output);
  }

  write(): string {
    const tokens = "gen_ai_client_token_usage";
    const duration = "gen_ai_client_operation_duration_seconds";
    const lines = [
      `# HELP ${tokens} Tokens of a finished request; cached input is input, reasoning is output.`,
      `# TYPE ${tokens} histogram`,
    ];
    for (const { labels, input, output } of this.#operations.values()) {
      lines.push(...input.write(tokens, { ...labels, gen_ai_token_type: "input" }));
      lines.push(...output.write(tokens, { ...labels, gen_ai_token_type: "output" }));
    }
    lines.push(
      `# HELP ${duration} Time from the connection to the gateway to the end of its response.`,
      `# TYPE ${duration} histogram`,
    );
    for (const { labels, seconds } of this.#operations.values())
      for (const [error, buckets] of seconds)
        lines.push(...buckets.write(duration, error === "" ? labels : { ...labels, error_type: error }));
    return `${lines.join("\n")}\n`;
  }

  #find(name: string, protocol: Protocol, asked: string | null, answered: string | null): Operation {
    const id = `${name}\n${protocol}\n${asked}\n${answered}`;
    const known = this.#operations.get(id);
    if (known !== undefined) return known;
    const isOther = asked === OTHER && answered === OTHER;
    if (this.#operations.size >= MAX_OPERATIONS && !isOther) return this.#find(name, protocol, OTHER, OTHER);
    const operation: Operation = {
      labels: {
        gen_ai_operation_name: name,
        gen_ai_provider_name: PROVIDERS[protocol],
        // The conventions leave out what is not known.
        ...(asked === null ? {} : { gen_ai_request_model: asked }),
        ...(answered === null ? {} : { gen_ai_response_model: answered }),
      },
      input: new Buckets(TOKEN_BUCKETS),
      output: new Buckets(TOKEN_BUCKETS),
      seconds: new Map(),
    };
    this.#operations.set(id, operation);
    return operation;
  }
}

function labelText(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${value.replace(/[\\"]/g, "\\$&").replaceAll("\n", "\\n")}"`)
    .join(",");
}

const PROVIDERS: Readonly<Record<Protocol, string>> = {
  openai: "openai",
  messages: "anthropic",
  gemini: "gcp.gemini",
};

/** The conventions' name for what was asked; null: they have none, or it is not billed by tokens. */
function operationName(metering: Metering | null, endpoint: string): string | null {
  switch (metering) {
    case "chat":
    case "responses":
    case "messages":
      return "chat";
    case "completions":
      return "text_completion";
    case "embeddings":
      return "embeddings";
    case "gemini":
      return /embedContents?$/i.test(endpoint) ? "embeddings" : "generate_content";
    default:
      return null;
  }
}

/** Empty: it went well. A gateway chooses its statuses, so only those of HTTP are listed. */
function errorType({ status, end, cause }: Closing): string {
  if (end !== "complete") return end ?? "";
  if (cause !== null) return cause;
  if (status === null || status < 400) return "";
  return status in STATUS_CODES ? String(status) : OTHER;
}
