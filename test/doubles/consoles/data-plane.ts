import { once } from "node:events";
import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { partsOf } from "./answers.ts";
import type { Book } from "./book.ts";
import type { Use } from "./console-double.ts";
import { type Ids, type Kind, type Question, type Reply, shownIn } from "./kind.ts";

export interface DataPlaneMeans {
  readonly kind: Kind;
  readonly book: Book;
  readonly bill: (use: Use, ids: Ids) => void;
  readonly fail: (use: Use, ids: Ids, rows: number) => void;
  readonly send: (res: ServerResponse, reply: Reply, headers: Readonly<Record<string, string>>) => void;
}

/*
 * What a request does is written in its own headers, so that a daemon can stand in between:
 * x-test-input, -output, -cache-read, -cache-write   tokens, in the answer and in the row; default 12, 5, 0, 0
 * x-test-row-output      the row's output, where it is not the answer's
 * x-test-dollars, x-test-list-dollars                money of the row; default by the tokens
 * x-test-no-usage        the answer tells no tokens
 * x-test-no-row          the console never lists it
 * x-test-errors          so many failed attempts before the one that succeeds
 * x-test-status          it fails with this status, and is not billed
 * x-test-hang-before-headers    no answer; billed when the client leaves
 * x-test-hang-in-body    the head and the first part, then nothing; billed when the client leaves
 * x-test-pieces          so many pieces of the answer before it hangs
 */

/** The gateway part: serves a key, hands out the id of its kind, and bills itself. */
export async function serveGateway(
  question: Question,
  res: ServerResponse,
  means: DataPlaneMeans,
): Promise<void> {
  const { kind, book, send } = means;
  const { path, headers, body } = question;
  const stream = body.stream === true;
  const ids = kind.ids(stream);
  const own = kind.headers(ids, question, false);
  if (!kind.serves(question.method, path)) return send(res, kind.elsewhere(question), own);
  const shown = shownIn(headers);
  const key = book.find(kind.keyText(shown));
  const refusal = kind.refuseKey(key, shown, ids);
  if (refusal !== null || key === null) return send(res, refusal ?? kind.elsewhere(question), own);
  if (path === "/v1/models") return send(res, { status: 200, body: kind.models(question) }, own);
  if (path.endsWith("/count_tokens")) return send(res, { status: 200, body: { input_tokens: 12 } }, own);
  const multiplier = book.groups.find(({ name }) => name === key.group)?.multiplier ?? 1;
  const use = useOf(question, key.key, stream, multiplier);
  const status = number(headers, "status");
  if (status !== null) {
    means.fail(use, ids, number(headers, "errors") ?? 1);
    return send(res, kind.failure(status, path, ids), own);
  }
  const began = performance.now();
  const settle = () => {
    const output = number(headers, "row-output") ?? use.output;
    const duration = Math.round(performance.now() - began);
    if (!told(headers, "no-row")) means.bill({ ...use, output, duration }, ids);
  };
  await answer(question, res, use, kind.headers(ids, question, true), settle);
}

async function answer(
  { path, headers }: Question,
  res: ServerResponse,
  use: Use,
  own: Readonly<Record<string, string>>,
  settle: () => void,
): Promise<void> {
  const gone = once(res, "close");
  if (told(headers, "hang-before-headers")) {
    await gone;
    return settle();
  }
  const parts = partsOf(path, use.stream, { ...use, usage: !told(headers, "no-usage") });
  res.writeHead(200, { "content-type": use.stream ? "text/event-stream" : "application/json", ...own });
  if (told(headers, "hang-in-body")) {
    res.write(use.stream ? parts[0] : parts[0]?.slice(0, 10));
    const piece = parts.find((part) => /"delta":\{("type":"text_delta"|"content")/.test(part)) ?? "";
    res.write(piece.repeat(number(headers, "pieces") ?? 0));
    await gone;
    return settle();
  }
  const last = parts.pop() ?? "";
  for (const part of parts) res.write(part);
  // Before the last byte: who has read the answer to its end finds the row.
  settle();
  res.end(last);
}

function useOf({ path, headers, body }: Question, key: string, stream: boolean, multiplier: number): Use {
  const input = number(headers, "input") ?? 12;
  const output = number(headers, "output") ?? 5;
  const cacheRead = number(headers, "cache-read") ?? 0;
  const cacheWrite = number(headers, "cache-write") ?? 0;
  const list =
    number(headers, "list-dollars") ??
    (input * 3 + cacheRead * 0.3 + cacheWrite * 3.75 + output * 15) / 1_000_000;
  return {
    key,
    model: typeof body.model === "string" ? body.model : "",
    stream,
    input,
    cacheRead,
    cacheWrite,
    output,
    dollars: number(headers, "dollars") ?? list * multiplier,
    listDollars: list,
    errors: number(headers, "errors") ?? 0,
    endpoint: path,
  };
}

function told(headers: IncomingHttpHeaders, name: string): boolean {
  return headers[`x-test-${name}`] !== undefined;
}

function number(headers: IncomingHttpHeaders, name: string): number | null {
  const value = Number(headers[`x-test-${name}`]);
  return Number.isNaN(value) ? null : value;
}
