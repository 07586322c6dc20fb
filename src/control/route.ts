import type { ServerResponse } from "node:http";
import type { Controls } from "./routes.ts";

export type Route = (controls: Controls, input: Input) => Promise<unknown> | unknown;

export interface Input {
  readonly name: string;
  readonly body: unknown;
  readonly peer: string;
  readonly res: ServerResponse;
}

export const NOT_FOUND: unique symbol = Symbol("not found");
/** The route goes on answering by itself. */
export const TAKEN: unique symbol = Symbol("taken");

/** An object with exactly these fields: one that is misspelt must not pass for one that was left out. */
export function hasOnly(body: unknown, fields: readonly string[]): body is Record<string, unknown> {
  if (typeof body !== "object" || body === null || Array.isArray(body)) return false;
  return Object.keys(body).length === fields.length && fields.every((field) => Object.hasOwn(body, field));
}
