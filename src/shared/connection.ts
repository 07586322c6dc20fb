import { rootCertificates } from "node:tls";
import type { SharedStore } from "../config/schema.ts";
import type { Secret } from "../core/secret.ts";
import { GRANT, JOIN, PUBLISH, RELEASE } from "./scripts.ts";

/*
 * The client library, and what its answers look like. Commands that the store's user needs: those below, and those that the
 * scripts call. docs/several-machines.md has the line for an access control list.
 */

/** The store cannot be asked, or its answer cannot be used. */
export class StoreError extends Error {}

/** The store can be reached, but this machine may not take part. */
export class StoreRefusal extends StoreError {}

export type Client = Awaited<ReturnType<typeof newClient>>;

/**
 * The library is loaded only here: without `shared` in config.yaml, it is not.
 *
 * @param signal ends the connection. The client's destroy() does not end an attempt to connect that is under way.
 */
export async function newClient(
  { url, username, authority }: SharedStore,
  password: Secret | null,
  signal: AbortSignal,
) {
  const { createClient, defineScript } = await import("@redis/client");
  /** A script that takes keys, then texts, and answers one text. */
  const script = (text: string) =>
    defineScript({
      SCRIPT: text,
      parseCommand(parser, keys: readonly string[], texts: readonly string[]) {
        parser.pushKeysLength([...keys]);
        parser.push(...texts);
      },
      transformReply: (reply: unknown): unknown => reply,
    });
  return createClient({
    url,
    ...(username === null ? {} : { username }),
    ...(password === null ? {} : { password: password.reveal() }),
    // Version 2 of the protocol needs no command beside AUTH to begin.
    RESP: 2,
    disableClientInfo: true,
    maintNotifications: "disabled",
    disableOfflineQueue: true,
    socket: {
      // store.ts connects again, because every connection begins with a report.
      reconnectStrategy: false,
      signal,
      ...(authority === null ? {} : { tls: true, ca: [...rootCertificates, authority.pem] }),
    },
    scripts: {
      joinMachines: script(JOIN),
      askForGrants: script(GRANT),
      publishRecords: script(PUBLISH),
      releaseGrants: script(RELEASE),
    },
  });
}

/** What `doctor` checks. */
export interface ServerFacts {
  readonly server: "redis" | "valkey";
  readonly version: string;
  readonly appendOnly: boolean;
  readonly evictionPolicy: string;
}

const MAX_WORD = 40;

/** @param info the answer of INFO. `run` changes with every start of the server's process. */
export function serverFacts(info: string): ServerFacts & { readonly run: string } {
  const values = new Map(info.split("\r\n").map((line) => splitOnce(line, ":")));
  const run = values.get("run_id");
  if (run === undefined || run === "") throw new StoreError("the store does not answer INFO as Redis does");
  const valkey = values.get("valkey_version");
  return {
    run,
    server: valkey === undefined ? "redis" : "valkey",
    version: printable(valkey ?? values.get("redis_version") ?? "unknown", MAX_WORD),
    appendOnly: values.get("aof_enabled") === "1",
    evictionPolicy: printable(values.get("maxmemory_policy") ?? "unknown", MAX_WORD),
  };
}

function splitOnce(text: string, separator: string): [string, string] {
  const at = text.indexOf(separator);
  return at === -1 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** The answer of a script: an object with at least the store's time. */
export interface Reply extends Readonly<Record<string, unknown>> {
  readonly time: number;
}

/** Characters. Sixty-four machines with twenty limits each are a tenth of it. */
const MAX_REPLY = 2_000_000;

export function parseReply(text: unknown): Reply {
  if (typeof text !== "string" || text.length > MAX_REPLY)
    throw new StoreError("the store's answer is damaged or too long");
  try {
    const reply = objectOf(JSON.parse(text));
    if (typeof reply.time === "number" && Number.isFinite(reply.time)) return reply as Reply;
  } catch {
    // Not JSON. The error below says so.
  }
  throw new StoreError("the store's answer is damaged");
}

/** An answer, or an error when it does not come in time. */
export async function within<T>(milliseconds: number, answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_, reject) => {
    const error = new StoreError(`no answer within ${milliseconds / 1000} seconds`);
    timer = setTimeout(() => reject(error), milliseconds);
  });
  try {
    return await Promise.race([answer, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

/** What a store says, for messages: printable and short. A fingerprint of a key begins with "…". */
export function printable(text: string, length: number): string {
  return text.slice(0, length).replace(/[^\x20-\x7e…]/g, "?");
}

export function objectOf(value: unknown): Readonly<Record<string, unknown>> {
  return value !== null && typeof value === "object" ? (value as Readonly<Record<string, unknown>>) : {};
}

/** Lua has one kind of table, so an empty list arrives as an empty object. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
