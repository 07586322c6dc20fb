import { Transform, type TransformCallback } from "node:stream";

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
/** A longer event is none that only tells a usage. */
const LONGEST_EVENT = 16 * 1024;

/** No quote stands bare inside a JSON string, so that no text a model wrote can look like these. */
const EMPTY_CHOICES = /"choices"\s*:\s*\[\s*\]/;
const SOME_CHOICES = /"choices"\s*:\s*\[\s*[^\s\]]/;
/** [DONE], or whatever else is no object. */
const OTHER_DATA = /(?:^|\n)data:[ \t]*[^\s{]/;
/** Every line of an event begins with the name of a field (data, event, id, retry), a colon, or a byte order mark. */
const FIRST_BYTES = "deir:\r\n\u00ef";

/**
 * Takes the chunk that only tells the usage, the one with no choices, out of an event stream again. Every other byte
 * passes as it is and at once: what is held back is no more than the beginning of an event that could still be that
 * chunk, with which no client could do anything yet either. An answer that is no event stream passes untouched.
 */
export function createUsageFilter(): Transform {
  const sieve = new Sieve();
  let broken = false;
  const safely = (done: TransformCallback, chunk: Buffer, sift: () => Buffer | null) => {
    if (broken) return done(null, chunk);
    try {
      return done(null, sift());
    } catch {
      // A mistake of ours must not cost the client its answer.
      broken = true;
      return done(null, Buffer.concat([sieve.held(), chunk]));
    }
  };
  return new Transform({
    transform: (chunk: Buffer, _encoding, done) => safely(done, chunk, () => sieve.sift(chunk)),
    flush: (done) => safely(done, Buffer.alloc(0), () => sieve.rest()),
  });
}

class Sieve {
  /** The beginning of the present event, from earlier chunks, that waits to be told apart. */
  #waiting: Buffer[] = [];
  #size = 0;
  /** The present event is none to be taken out. */
  #passing = false;
  /** Nothing but perhaps a carriage return was seen of the present line; of the present event nothing. */
  #lineEmpty = true;
  #fresh = true;
  #comment = false;

  /** What of it may pass now, with what waited; null: nothing. */
  sift(chunk: Buffer): Buffer | null {
    const waited = this.#size;
    const out: Buffer[] = [];
    let begin = 0;
    for (let at = 0; at < chunk.length; ) {
      const lf = chunk.indexOf(LF, at);
      const end = lf === -1 ? chunk.length : lf + 1;
      const ended = this.#line(chunk, at, lf === -1 ? end : lf, lf !== -1);
      if (ended) {
        this.#end(chunk.subarray(begin, end), out);
        begin = end;
      }
      at = end;
    }
    if (begin < chunk.length) this.#keep(chunk.subarray(begin), out);
    const size = out.reduce((sum, part) => sum + part.length, 0);
    // Nearly always: nothing waited, nothing is taken out, nothing waits.
    if (waited === 0 && size === chunk.length) return chunk;
    return size === 0 ? null : Buffer.concat(out, size);
  }

  /** The stream is over, perhaps in the middle of an event. */
  rest(): Buffer | null {
    const last = this.held();
    return last.length === 0 || isUsage(last) ? null : last;
  }

  held(): Buffer {
    return Buffer.concat(this.#waiting);
  }

  /** Reads on in a line. Whether an event, or a comment between two, has ended with it. */
  #line(chunk: Buffer, from: number, to: number, whole: boolean): boolean {
    if (this.#lineEmpty && to > from) {
      if (this.#fresh) this.#comment = chunk[from] === COLON;
      this.#lineEmpty = to === from + 1 && chunk[from] === CR;
    }
    if (!whole) return false;
    // Some gateways keep the connection alive with comments, which must not wait for an event to come.
    const ended = this.#lineEmpty || this.#comment;
    this.#fresh = ended;
    this.#comment = false;
    this.#lineEmpty = true;
    return ended;
  }

  #end(last: Buffer, out: Buffer[]): void {
    if (this.#passing) out.push(last);
    else {
      const event = this.#waiting.length === 0 ? last : Buffer.concat([...this.#waiting, last]);
      if (!isUsage(event)) out.push(event);
    }
    this.#forget(false);
  }

  #keep(part: Buffer, out: Buffer[]): void {
    if (this.#passing) {
      out.push(part);
      return;
    }
    this.#waiting.push(part);
    this.#size += part.length;
    const event = this.held();
    if (this.#size > LONGEST_EVENT || !mayBeUsage(event)) {
      out.push(event);
      this.#forget(true);
    } else this.#waiting = [event];
  }

  #forget(passing: boolean): void {
    this.#waiting = [];
    this.#size = 0;
    this.#passing = passing;
  }
}

/** Of the beginning of an event. */
function mayBeUsage(begun: Buffer): boolean {
  const text = begun.toString("latin1");
  return FIRST_BYTES.includes(text.charAt(0)) && !SOME_CHOICES.test(text) && !OTHER_DATA.test(text);
}

function isUsage(event: Buffer): boolean {
  if (event.length > LONGEST_EVENT || !EMPTY_CHOICES.test(event.toString("latin1"))) return false;
  const lines = event.toString("utf8").split(/\r?\n/);
  const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice("data:".length));
  try {
    const { choices, usage } = JSON.parse(data.join("\n"));
    return Array.isArray(choices) && choices.length === 0 && typeof usage === "object" && usage !== null;
  } catch {
    return false;
  }
}
