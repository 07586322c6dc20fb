import type { Test } from "tap";
import type { ConsoleDouble, Use } from "./console-double.ts";
import { type NewApiOptions, startNewApi } from "./new-api.ts";
import { startOneApi } from "./one-api.ts";
import { type Sub2apiOptions, startSub2api } from "./sub2api.ts";

export const KEY = "sk-0123456789abcdefABCDEF0123456789";

export const USE: Use = {
  key: KEY,
  model: "m",
  stream: false,
  input: 10,
  cacheRead: 4,
  cacheWrite: 2,
  output: 3,
  dollars: 0.003,
};

/** What a console answered, which may be anything. */
export interface Json {
  readonly [name: string]: Json;
}

export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly json: Json;
  /** Of the list in `data` or in its items. */
  readonly items: readonly Json[];
}

export async function ask(
  url: string,
  path: string,
  headers: Record<string, string> = {},
  body?: object,
): Promise<Answered> {
  const answer = await fetch(`${url}${path}`, {
    redirect: "manual",
    headers: { "content-type": "application/json", ...headers },
    ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  const json = text.startsWith("{") ? (JSON.parse(text) as Json) : ({} as Json);
  const data: unknown = json.data;
  const items = Array.isArray(data) ? data : ((data as { items?: Json[] } | undefined)?.items ?? []);
  return { status: answer.status, headers: answer.headers, text, json, items };
}

/** Somebody who is logged in, with a key of the group `coding`. */
export interface LoggedIn {
  readonly double: ConsoleDouble;
  get(path: string, headers?: Record<string, string>): Promise<Answered>;
}

export function keyed(double: ConsoleDouble): ConsoleDouble {
  double.addKey({ name: "codex", key: KEY, group: "coding", multiplier: 1.5 });
  return double;
}

export async function sub2api(
  t: Test,
  options: Sub2apiOptions = {},
): Promise<LoggedIn & { readonly session: Json }> {
  const double = keyed(await startSub2api(t, options));
  const { email, password } = double.login;
  const { json } = await ask(double.url, "/api/v1/auth/login", {}, { email, password });
  const session = json.data ?? {};
  const authorization = `Bearer ${session?.access_token}`;
  return {
    double,
    session,
    get: (path, headers) => ask(double.url, `/api/v1${path}`, { authorization, ...headers }),
  };
}

export async function newApi(t: Test, options: NewApiOptions = {}): Promise<LoggedIn> {
  const double = keyed(await startNewApi(t, options));
  const headers = { authorization: `Bearer ${double.login.accessToken}`, "new-api-user": double.login.user };
  return { double, get: (path, more) => ask(double.url, `/api${path}`, { ...headers, ...more }) };
}

export async function oneApi(t: Test): Promise<LoggedIn> {
  const double = keyed(await startOneApi(t));
  const headers = { authorization: double.login.accessToken };
  return { double, get: (path, more) => ask(double.url, `/api${path}`, { ...headers, ...more }) };
}
