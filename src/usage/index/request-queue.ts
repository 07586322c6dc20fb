import { type MessagePort, receiveMessageOnPort } from "node:worker_threads";
import type { QuestionName } from "../reports/questions.ts";

export type RunKind = "catch-up" | "rebuild";

interface AskedRun {
  readonly kind: RunKind;
  readonly number: number;
}

export interface Asked {
  readonly kind: "ask";
  readonly number: number;
  readonly name: QuestionName;
  readonly values: readonly unknown[];
}

/** What the daemon sends to the index's thread. cancel: the question with this number needs no answer any more. */
export type Request =
  | AskedRun
  | Asked
  | { readonly kind: "cancel"; readonly number: number }
  | { readonly kind: "stop" };

/** What a run does for everyone who has asked for it. */
export interface Run {
  readonly kind: RunKind;
  readonly numbers: readonly number[];
}

/**
 * What the index's thread is to do. A stop comes before runs, and runs before questions, because whoever waits for a run
 * soon gives up.
 */
export class RequestQueue {
  readonly #port: MessagePort;
  #runs: AskedRun[] = [];
  readonly #questions = new Map<number, Asked>();
  #stopped = false;
  #wake = (): void => {};

  constructor(port: MessagePort) {
    this.#port = port;
    port.on("message", (request: Request) => {
      this.#add(request);
      this.#wake();
    });
  }

  /** Takes in what has arrived, without a turn of the event loop. false: a stop is there. */
  receive(): boolean {
    for (;;) {
      const received = receiveMessageOnPort(this.#port);
      if (received === undefined) return !this.#stopped;
      this.#add(received.message as Request);
    }
  }

  /** One for all that ask for the same: what was appended before they asked is in the journal by now. */
  takeRun(): Run | null {
    const [first] = this.#runs;
    if (first === undefined) return null;
    const same = this.#runs.filter(({ kind }) => kind === first.kind);
    this.#runs = this.#runs.filter(({ kind }) => kind !== first.kind);
    return { kind: first.kind, numbers: same.map(({ number }) => number) };
  }

  /** The oldest. */
  takeQuestion(): Asked | null {
    for (const asked of this.#questions.values()) {
      this.#questions.delete(asked.number);
      return asked;
    }
    return null;
  }

  /** Waits for the next request, after everything that was received is taken. */
  arrival(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  #add(request: Request): void {
    switch (request.kind) {
      case "stop":
        this.#stopped = true;
        break;
      case "ask":
        this.#questions.set(request.number, request);
        break;
      case "cancel":
        this.#questions.delete(request.number);
        break;
      default:
        this.#runs.push(request);
    }
  }
}
