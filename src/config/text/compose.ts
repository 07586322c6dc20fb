import { Composer, type Document, type ErrorCode, Parser } from "yaml";

/** What is wrong with the text as YAML. */
export interface Fault {
  readonly at: number;
  readonly code: ErrorCode;
  readonly message: string;
}

export type Composed =
  | { readonly document: Document.Parsed; readonly faults: readonly [] }
  | { readonly document: null; readonly faults: readonly Fault[] };

type Place = number | readonly number[] | { readonly offset: number };

/**
 * A text's tokens as a YAML document: they are there since its bounds were looked at. The same as `parseDocument`, which goes on to the end however much is wrong: a hundred
 * thousand brackets are a hundred thousand errors, each with a stack trace. This one stops at `most`.
 */
export function compose(lexemes: readonly string[], length: number, most: number): Composed {
  const faults: Fault[] = [];
  const note = (fault: Fault) => {
    // The composer says some things twice, and catches what is thrown below it and reports that as well.
    const last = faults.at(-1);
    const isNews = last?.at !== fault.at || last.message !== fault.message;
    if (isNews && faults.length < most) faults.push(fault);
    if (faults.length >= most) throw new EnoughFaults();
  };
  // failsafe: every scalar is text, so that `no`, `1e5` and `~` are what the person typed. uniqueKeys is quadratic.
  const composer = new Composer({ schema: "failsafe", version: "1.2", uniqueKeys: false });
  // Not part of its interface. Should it be called otherwise one day, the faults below are still found, only late.
  Object.assign(composer, {
    onError(place: Place, code: ErrorCode, message: string, isWarning?: boolean) {
      if (!isWarning) note({ at: offsetOf(place), code, message });
    },
  });
  const documents: Document.Parsed[] = [];
  try {
    for (const document of composer.compose(boundedTokens(lexemes, most), true, length)) {
      for (const { pos, code, message } of document.errors) note({ at: pos[0], code, message });
      documents.push(document);
      const second = documents[1];
      if (second !== undefined) {
        note({ at: second.range[0], code: "MULTIPLE_DOCS", message: "there is a second document" });
        break;
      }
    }
  } catch (error) {
    if (!(error instanceof EnoughFaults)) throw error;
  }
  const [document] = documents;
  return faults.length > 0 || document === undefined ? { document: null, faults } : { document, faults: [] };
}

/** Thrown through the composer, which has no other way of being stopped. */
class EnoughFaults extends Error {}

/** The parser gives out what it cannot place as tokens of their own. */
function* boundedTokens(lexemes: readonly string[], most: number) {
  let errors = 0;
  for (const token of tokensOf(lexemes)) {
    if (token.type === "error") errors += 1;
    if (errors > most) return;
    yield token;
  }
}

function* tokensOf(lexemes: readonly string[]) {
  const parser = new Parser();
  for (const lexeme of lexemes) yield* parser.next(lexeme);
  yield* parser.end();
}

function offsetOf(place: Place): number {
  if (typeof place === "number") return place;
  return "offset" in place ? place.offset : (place[0] ?? 0);
}
