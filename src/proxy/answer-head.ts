import type { IncomingMessage } from "node:http";

/** The head of a gateway's answer, whoever read it off the connection. */
export interface AnswerHead {
  readonly status: number;
  /** The words behind the status. */
  readonly words: string;
  /** Name, value, name, value: as they came. */
  readonly rawHeaders: readonly string[];
  readonly contentType: string;
  /** undefined: the header is not there. */
  readonly contentEncoding: string | undefined;
  /** NaN: the head does not say. */
  readonly contentLength: number;
  /** How long the gateway says it keeps the connection. */
  readonly keepAlive: string | undefined;
}

/** Looks only for what is asked for: an object of all headers costs several times that. */
export function answerHead(status: number, words: string, rawHeaders: readonly string[]): AnswerHead {
  let contentType: string | undefined;
  let contentEncoding: string | undefined;
  let contentLength = Number.NaN;
  let keepAlive: string | undefined;
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? "";
    const value = rawHeaders[i + 1] ?? "";
    if (isNamed(name, "content-type")) contentType ??= value;
    else if (isNamed(name, "content-length")) contentLength = Number(value);
    else if (isNamed(name, "keep-alive")) keepAlive = value;
    else if (isNamed(name, "content-encoding"))
      contentEncoding = contentEncoding === undefined ? value : `${contentEncoding}, ${value}`;
  }
  return {
    status,
    words,
    rawHeaders,
    contentType: contentType ?? "",
    contentEncoding,
    contentLength,
    keepAlive,
  };
}

export function headOf({ statusCode = 0, statusMessage = "", rawHeaders }: IncomingMessage): AnswerHead {
  return answerHead(statusCode, statusMessage, rawHeaders);
}

function isNamed(name: string, lower: string): boolean {
  return name.length === lower.length && name.toLowerCase() === lower;
}
