import type { Config } from "../config/schema.ts";
import { background } from "../core/background.ts";
import type { Logger } from "../core/log.ts";
import { readOwnFile } from "../core/own-file.ts";
import { writePrivateFile } from "../core/private-file.ts";
import type { Prices } from "../metering/prices.ts";
import { ModelComparison } from "../metering/same-model.ts";

/** The answers of another model than the one asked for, of one tool since the start. */
export interface OtherModelStatus {
  /** Answers that name their model. */
  readonly answered: number;
  /** How many of them name another one than was asked for. */
  readonly other: number;
  /** The most frequent pairs first. */
  readonly pairs: readonly ModelPair[];
}

export interface ModelPair {
  readonly asked: string;
  readonly answered: string;
  readonly requests: number;
}

interface OtherModelsDeps {
  /** Which pairs were reported, so that a restart does not report them again. */
  readonly file: string;
  readonly log: Logger;
  readonly prices: Pick<Prices, "isSameModel">;
  readonly config: () => Config;
  /** Called once for each pair of models of a tool. */
  readonly report: (found: OtherModel) => void;
}

export interface OtherModel {
  readonly tool: string;
  readonly asked: string;
  readonly answered: string;
}

/** Of a tool. A gateway that invents a name for each answer must not fill the memory and the log. */
const MAX_PAIRS = 50;
/** Of all tools. */
const MAX_REPORTED = 1000;
const MAX_BYTES = 4 * 1024 * 1024;

interface ToolCounts {
  answered: number;
  other: number;
  /** By both names. */
  readonly pairs: Map<string, { readonly asked: string; readonly answered: string; requests: number }>;
}

/** Whether each tool gets the model that it asks for. What it gets instead is reported once for each pair of models. */
export class OtherModels {
  readonly #deps: OtherModelsDeps;
  readonly #comparison: ModelComparison;
  readonly #tools = new Map<string, ToolCounts>();
  /** Tool, model asked for, model that answered: as one line of JSON. */
  readonly #reported: Set<string>;
  #writing: Promise<unknown> = Promise.resolve();

  constructor(deps: OtherModelsDeps) {
    this.#deps = deps;
    this.#comparison = new ModelComparison(deps.prices);
    this.#reported = new Set(readReported(deps.file));
  }

  /** A response has ended. null: the request or the response names no model. */
  note(tool: string, asked: string | null, answered: string | null): void {
    if (asked === null || answered === null) return;
    let counts = this.#tools.get(tool);
    if (counts === undefined) {
      counts = { answered: 0, other: 0, pairs: new Map() };
      this.#tools.set(tool, counts);
    }
    counts.answered += 1;
    // The usual case.
    if (asked === answered) return;
    if (this.#comparison.isSame(asked, answered, this.#deps.config().usage.sameModels)) return;
    counts.other += 1;
    const name = JSON.stringify([asked, answered]);
    const pair = counts.pairs.get(name);
    if (pair !== undefined) pair.requests += 1;
    else if (counts.pairs.size < MAX_PAIRS) {
      counts.pairs.set(name, { asked, answered, requests: 1 });
      this.#reportFirst(tool, asked, answered);
    }
  }

  /** null: no answer has named a model since the start. */
  status(tool: string): OtherModelStatus | null {
    const counts = this.#tools.get(tool);
    if (counts === undefined) return null;
    const { answered, other, pairs } = counts;
    return { answered, other, pairs: [...pairs.values()].sort((a, b) => b.requests - a.requests) };
  }

  async stop(): Promise<void> {
    await this.#writing;
  }

  #reportFirst(tool: string, asked: string, answered: string): void {
    const line = JSON.stringify([tool, asked, answered]);
    if (this.#reported.has(line)) return;
    const [oldest] = this.#reported;
    if (this.#reported.size >= MAX_REPORTED && oldest !== undefined) this.#reported.delete(oldest);
    this.#reported.add(line);
    background(this.#write(), this.#deps.log, "writing which models answered instead of others");
    this.#deps.report({ tool, asked, answered });
  }

  #write(): Promise<unknown> {
    const text = `[\n${[...this.#reported].join(",\n")}\n]\n`;
    // One after the other, so that an older text does not replace a newer one.
    const written = this.#writing.then(() => writePrivateFile(this.#deps.file, text));
    this.#writing = written.catch(() => {});
    return written;
  }
}

/** A missing or damaged file means that nothing was reported. */
function readReported(file: string): string[] {
  try {
    const entries: unknown = JSON.parse(readOwnFile(file, MAX_BYTES) ?? "[]");
    return Array.isArray(entries) ? entries.map((entry) => JSON.stringify(entry)).slice(-MAX_REPORTED) : [];
  } catch {
    // The pairs would be reported again, which is not worth a failed start.
    return [];
  }
}
