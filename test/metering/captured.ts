import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import zlib from "node:zlib";
import { Meter, type Reading, type ResponseHead } from "../../src/metering/meter.ts";
import type { Metering } from "../../src/metering/protocols.ts";
import { NO_TOKENS } from "../../src/metering/usage.ts";
import { ROOT } from "../doubles/paths.ts";

const FOLDER = join(ROOT, "test", "metering", "streams");

/** An answer as a gateway gives it: a line on what it is, what should be read of it, a line of dashes, its body. */
export interface Captured {
  readonly name: string;
  readonly note: string;
  readonly head: ResponseHead;
  readonly body: Buffer;
  readonly expected: Omit<Reading, "text" | "problem">;
  /** Where it is said. */
  readonly text: Reading["text"] | undefined;
}

export function captured(): Captured[] {
  return readdirSync(FOLDER)
    .sort()
    .map((file) => parse(file.replace(/\.txt$/, ""), readFileSync(join(FOLDER, file), "utf8")));
}

function parse(name: string, file: string): Captured {
  const [note = "", said = "", , ...lines] = file.split("\n");
  const { metering, contentType, newlines, text, ...expected } = {
    serviceTier: null,
    refused: false,
    refusal: null,
    ...JSON.parse(said),
  } as Reading & {
    metering: Metering | null;
    contentType: string;
    newlines?: "crlf";
    text?: Reading["text"];
  };
  const tokens = expected.tokens === null ? null : { ...NO_TOKENS, ...expected.tokens };
  const body = Buffer.from(lines.join(newlines === "crlf" ? "\r\n" : "\n"));
  const head = { metering, status: 200, contentType, contentEncoding: undefined, countText: true };
  return { name, note, head, body, expected: { ...expected, tokens }, text };
}

export function read(head: ResponseHead, pieces: readonly Buffer[]): Promise<Reading> {
  const meter = new Meter(head);
  for (const piece of pieces) meter.see(piece);
  return meter.finish();
}

type Encode = (bytes: Buffer) => Buffer;

const zstd: unknown = Reflect.get(zlib, "zstdCompressSync");

/** By the value of content-encoding. Deflate comes in two forms; one is wrong and common. */
export const encodings: readonly (readonly [string, Encode])[] = [
  ["gzip", (bytes) => zlib.gzipSync(bytes)],
  [
    "x-gzip",
    (bytes) => Buffer.concat([zlib.gzipSync(bytes.subarray(0, 99)), zlib.gzipSync(bytes.subarray(99))]),
  ],
  ["deflate", (bytes) => zlib.deflateSync(bytes)],
  ["Deflate", (bytes) => zlib.deflateRawSync(bytes)],
  ["br", (bytes) => zlib.brotliCompressSync(bytes)],
  ["gzip, br", (bytes) => zlib.brotliCompressSync(zlib.gzipSync(bytes))],
  ["identity,gzip , identity", (bytes) => zlib.gzipSync(bytes)],
  ...(typeof zstd === "function" ? ([["zstd", zstd as Encode]] as const) : []),
];
