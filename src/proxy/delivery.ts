import { pipeline, type Transform } from "node:stream";
import { contentKind } from "../metering/protocols.ts";
import type { AnswerHead } from "./answer-head.ts";
import { filterFor } from "./ask-usage.ts";
import { Gathering, readError } from "./error-body.ts";
import type { Exchange } from "./exchange.ts";
import { addOwn, incomingHeaders, reasonPhrase, reframe, withCause } from "./headers.ts";
import type { Hearing } from "./hearing.ts";
import { KeyMask } from "./key-mask.ts";
import type { Passage } from "./passage.ts";

/** A gateway's answer on its way to the client, at the client's pace. */
export class Delivery {
  readonly #exchange: Exchange;
  readonly #answer: AnswerHead;
  readonly #hearing: Hearing;
  readonly #passage: Passage;
  /** The gateway's error, as long as its beginning is read. */
  #error: Gathering | null = null;
  /** What the answer goes through before it is sent. */
  #filter: Transform | null = null;
  /** Takes the key out of what comes in pieces; null: nobody looks for it there. */
  #mask: KeyMask | null = null;
  /** Some of the body is sent. */
  #begun = false;
  /** The client has to catch up. */
  #waiting = false;
  /** It was ended before the gateway's answer was. */
  #isCut = false;

  constructor(exchange: Exchange, answer: AnswerHead, hearing: Hearing, passage: Passage) {
    this.#exchange = exchange;
    this.#answer = answer;
    this.#hearing = hearing;
    this.#passage = passage;
  }

  begin(): void {
    if (this.#answer.status >= 400) {
      this.#error = new Gathering();
      return;
    }
    const headers = incomingHeaders(this.#answer.rawHeaders, this.#exchange.key);
    const filter = filterFor(this.#answer, this.#exchange.asking);
    // Of a stream out of which something is taken, the length would be wrong.
    if (filter !== null) reframe(headers, null);
    // A stream may tell of a refusal, too, and name the key in it.
    if (contentKind(this.#answer.contentType) === "events") this.#mask = new KeyMask(this.#exchange.key);
    this.#writeHead(withCause(headers, this.#hearing.cause));
    if (filter !== null) this.#passThrough(filter);
    // Bytes that came together with the head are told of before that, and leave in one write with it. Otherwise it goes
    // out alone, and at once: a stream may take its time with the first event.
    void this.#flushUnlessBegun();
  }

  /** False: the client is not that fast, and the passage is told when it is. */
  piece(chunk: Buffer, isLast: boolean): boolean {
    if (this.#error !== null) return !this.#error.add(chunk) || this.#passError(this.#error, false);
    if (this.#isCut) return true;
    this.#hearing.see(chunk);
    return this.#write(chunk, isLast);
  }

  get isCut(): boolean {
    return this.#isCut;
  }

  /** The answer is whole. */
  end(): void {
    const to = this.#filter ?? this.#exchange.res;
    if (this.#error !== null) this.#passError(this.#error, true);
    else if (!to.writableEnded) to.end(this.#mask?.end());
  }

  async #flushUnlessBegun(): Promise<void> {
    await null;
    const { res } = this.#exchange;
    // An answer without a body has its end by now, and its connection may serve another one.
    if (!this.#begun && !res.writableEnded && !res.destroyed) res.flushHeaders();
  }

  readonly #onDrain = (): void => {
    this.#waiting = false;
    this.#passage.resume();
  };

  #write(chunk: Buffer, isLast: boolean): boolean {
    const { res } = this.#exchange;
    const to = this.#filter ?? res;
    this.#begun = true;
    if (res.destroyed || to.writableEnded) return true;
    const clean = this.#mask === null ? chunk : this.#withoutKey(this.#mask, chunk, isLast);
    // The last one goes out with the end, in one write.
    if (isLast) to.end(clean);
    else if (!to.write(clean)) {
      // More of what was read by then may follow.
      if (!this.#waiting) to.once("drain", this.#onDrain);
      this.#waiting = true;
      return false;
    }
    return true;
  }

  #withoutKey(mask: KeyMask, chunk: Buffer, isLast: boolean): Buffer {
    const clean = mask.pass(chunk);
    return isLast ? Buffer.concat([clean, mask.end()]) : clean;
  }

  /** Sends what was held back of an error; what follows it goes as it comes. */
  #passError(gathering: Gathering, whole: boolean): boolean {
    this.#error = null;
    const gathered = gathering.gathered(whole);
    const error = readError(this.#answer, gathered, this.#exchange.key);
    this.#hearing.readAsError(error, gathered.bytes);
    this.#writeHead(error.headers);
    this.#isCut = error.isCut;
    const isAll = whole || error.isCut;
    if (!isAll) this.#mask = new KeyMask(this.#exchange.key);
    return this.#write(error.body, isAll);
  }

  #passThrough(filter: Transform): void {
    this.#filter = filter;
    // What failed is known from the streams' own events.
    pipeline(filter, this.#exchange.res, () => {});
  }

  #writeHead(headers: string[]): void {
    const { res, key, ownHeaders } = this.#exchange;
    const { status, words } = this.#answer;
    // The gateway's Date, or none: the mirror measures the gateway's clock by it.
    res.sendDate = false;
    addOwn(headers, ownHeaders);
    res.writeHead(status, reasonPhrase(words, key), headers);
  }
}
