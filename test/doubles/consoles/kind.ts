import { randomBytes, randomInt } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { Book, BookedKey, BookedRow } from "./book.ts";
import type { DoubleKind, DoubleLogin } from "./console-double.ts";

export interface Question {
  readonly method: string;
  /** Without its query. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** {} where there was none, or none that is an object. */
  readonly body: Readonly<Record<string, unknown>>;
}

export interface Reply {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** An object goes out as JSON. */
  readonly body: object | string;
}

export interface Ids {
  /** In the row. */
  readonly own: string;
  /** In the head of an answer from the service behind; "" where there is none. */
  readonly handed: string;
  /** Of a gateway behind this one. */
  readonly upstream: string | null;
}

/** What tells one kind of console from another. */
export interface Kind {
  readonly kind: DoubleKind;
  /** The lines below `console:`, but for the url. */
  readonly config: readonly string[];
  readonly login: DoubleLogin;
  /** Failed attempts are rows of their own. */
  readonly listsErrors: boolean;
  /** What stands among the rows though it is no usage. */
  readonly others: readonly BookedRow["type"][];
  /** The whole text of a key, as this kind reads what is shown as one. */
  keyText(shown: string): string;
  /** Whether it is a question to the console, not to the gateway part. */
  isConsole(path: string): boolean;
  /** null: no such path. */
  console(question: Question): Reply | null;
  refuse(how: "401" | "429" | "500" | "data"): Reply;
  /** A path that leads nowhere. */
  elsewhere(question: Question): Reply;
  /** Headers of every answer. relayed: the answer came from the service behind, with its own headers. */
  headers(ids: Ids, question: Question, relayed: boolean): Readonly<Record<string, string>>;
  ids(stream: boolean, own?: string): Ids;
  /** Endpoints of the gateway part that this kind has. */
  serves(method: string, path: string): boolean;
  /** null: the key is served. */
  refuseKey(key: BookedKey | null, shown: string, ids: Ids): Reply | null;
  /** What became of a request that nobody upstream could serve. */
  failure(status: number, path: string, ids: Ids): Reply;
  models(question: Question): object;
  endSessions(which: "access" | "all"): void;
}

export interface KindMeans {
  readonly book: Book;
  /** The console's own clock, skew and all. */
  readonly now: () => number;
  readonly limits: boolean;
}

export const LOGIN: DoubleLogin = {
  email: "owner@gateway.example",
  password: "correct-horse-battery",
  code: "246810",
  accessToken: "pat9f2c7e51b04d48a6",
  user: "7",
};

export const INDEX_HTML: Reply = {
  status: 200,
  headers: { "content-type": "text/html; charset=utf-8" },
  body: '<!doctype html><html lang="en"><head><title>Console</title></head><body><div id="app"></div></body></html>',
};

/** What is shown as a key, or as a console's credential. */
export function shownIn(headers: IncomingHttpHeaders): string {
  const bearer = headers.authorization?.replace(/^Bearer\s+/i, "").trim();
  const other = headers["x-api-key"] ?? headers["x-goog-api-key"];
  return bearer ?? (typeof other === "string" ? other : "");
}

export function expired(key: BookedKey, now: number): boolean {
  return key.expiresAt !== undefined && key.expiresAt <= now;
}

export function exhausted(key: BookedKey): boolean {
  return key.quota !== undefined && key.usedDollars >= key.quota;
}

/** Whole number of a query, or what it is by default where it is none. */
export function numberIn(query: URLSearchParams, names: readonly string[], otherwise: number): number {
  const text = names.map((name) => query.get(name)).find((value) => value !== null && value !== "");
  return text !== undefined && text !== null && /^-?\d{1,15}$/.test(text) ? Number(text) : otherwise;
}

/** new-api and one-api cut a key at the first hyphen after its `sk-`, and take it without. */
export function cutKey(shown: string): string {
  return `sk-${shown.replace(/^sk-/, "").split("-")[0]}`;
}

/** UTC to the second, nine digits of nanoseconds, what newer versions put in between, and chance. */
export function oneapiId(at: number, between: string): string {
  const seconds = new Date(at).toISOString().replace(/\D/g, "").slice(0, 14);
  const nanos = String((at % 1000) * 1_000_000 + randomInt(1_000_000)).padStart(9, "0");
  return `${seconds}${nanos}${between}${randomBytes(4).toString("hex")}`;
}
