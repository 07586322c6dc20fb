import { randomBytes } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import type { SharedStore } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import { errorMessage } from "../core/errors.ts";
import { asFields, asList, type JsonObject, parseObject } from "../core/json.ts";
import type { Logger } from "../core/log.ts";
import type { Secret } from "../core/secret.ts";
import { DAY_MS } from "../core/units.ts";
import {
  parseReply,
  printable,
  type Reply,
  type ServerFacts,
  StoreClient,
  StoreError,
  StoreRefusal,
  serverFacts,
  within,
} from "./connection.ts";
import { ENTRY_ID, KEEP_DAYS, type RecordStore, type StreamEntry } from "./records.ts";
import { GRANT, JOIN, PUBLISH, RELEASE } from "./scripts.ts";
import type { Signer } from "./signature.ts";
import { type KnownMachine, parseRotatedKeys, type RotatedKey, type StateFile } from "./state-file.ts";
import { StoreClock } from "./store-clock.ts";

/** A machine, as the store lists it. */
export interface Machine extends KnownMachine {
  /** Its last contact, by the store's clock. */
  readonly lastContact: number;
  /**
   * All its requests that started before this have ended and are published, by the store's clock. null: unknown.
   * Of a machine that stopped: its last contact.
   */
  readonly published: number | null;
  /** It stopped, and had published everything. */
  readonly isStopped: boolean;
  /** The last entry of its stream; null: none. */
  readonly lastEntry: string | null;
  /** The owner said that it is lost, or it was silent for months. */
  readonly isLost: boolean;
  /** The store may have lost data, and waits until this machine reports what it holds. */
  readonly isUnreported: boolean;
  /**
   * Whether name, keys and published are the machine's own words. null: this machine has no secret to check it with, or the
   * store lost the data, and the machine has not reported since.
   */
  readonly signature: Signature | null;
  /** The keys that it rotated while others used them. Empty, unless it signed that. */
  readonly rotated: readonly RotatedKey[];
}

/** wrong: made with another secret, or of something else. */
export type Signature = "valid" | "missing" | "wrong";

/** One limit in one window: what this machine keeps of it, and what it asks for. All are its totals in the window. */
export interface GrantAsk {
  readonly key: string;
  readonly tool: string;
  readonly keep: number;
  /** What the waiting requests need; 0: nothing more. */
  readonly need: number;
  /** What the first of them needs; 0: none waits. */
  readonly least: number;
  /** Whether it may get more than it needs, for the requests that follow. */
  readonly spare: boolean;
  readonly used: number;
  /** By requests in flight. */
  readonly held: number;
  readonly limit: number;
  readonly start: number;
  readonly end: number;
  /** When the store may forget it; 0: never. */
  readonly expires: number;
  readonly isConcurrent: boolean;
}

export interface GrantAnswer {
  readonly granted: number;
  readonly parts: readonly Part[];
}

/** What one machine has of a limit. */
export interface Part {
  /** Its id. */
  readonly machine: string;
  readonly granted: number;
  readonly used: number;
}

interface GrantReply {
  /** The store's time at which the grants were made. */
  readonly time: number;
  /** In the order of the asks. */
  readonly answers: readonly GrantAnswer[];
}

/** The `published` of a machine that stopped after it had published everything. Larger than any time. */
export const STOPPED = 1e15;

/** What this machine says of itself with every call. */
export interface Presence {
  readonly published: number | null;
  readonly keys: readonly string[];
  /** Only for machines that can check the signature. */
  readonly rotated: readonly RotatedKey[];
}

export type StoreState = "connecting" | "connected" | "unreachable" | "refused";

interface StoreDeps {
  readonly store: SharedStore;
  readonly password: Secret | null;
  /** null: config.yaml has no secret. */
  readonly signer: Signer | null;
  readonly timezone: string;
  /** Who this machine is, and the other machines that it knows. After a loss of data, the store waits for them. */
  readonly file: StateFile;
  /** The name of this machine. */
  readonly machine: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** A connection was made, and nothing is reported on it yet. */
  readonly onConnect: () => void;
  /** A connection was lost, or could not be made. */
  readonly onFailure: () => void;
  /** What was granted to this machine is no longer its own. Another daemon has its identity, or the owner released it. */
  readonly onForfeited: () => void;
}

/** A store that takes longer counts as unreachable. */
const CALL_MS = 2000;
const CONNECT_MS = 5000;
const MIN_RETRY_MS = 250;
const MAX_RETRY_MS = 5000;
/** After another daemon took over this machine's identity: the two must not interrupt each other all the time. */
const SUPERSEDED_RETRY_MS = 30_000;
const MAX_MACHINES = 64;
const MAX_NAME = 64;
const MAX_KEYS = 256;
const MAX_PROBLEM = 200;
/** How the store answers to a wrong password, or to a user that may not do what is needed. */
const NOT_ALLOWED = /^(?:WRONGPASS|NOAUTH|NOPERM)\b/;
const KEEP_RECORDS_MS = KEEP_DAYS * DAY_MS;

interface Connection {
  readonly client: StoreClient;
  /** Sent with every call. After a newer connection of the same machine, the calls of this one are refused. */
  readonly name: string;
  readonly generation: string;
}

/**
 * The connection to the store, and the calls on it. It reconnects by itself. A call that fails or takes too long ends its
 * connection, and the next one begins with a report. So a late GRANT or PUBLISH of the old connection changes nothing.
 */
export class Store implements RecordStore {
  readonly clock: StoreClock;
  readonly #deps: StoreDeps;
  readonly #stop = new AbortController();
  #connection: Connection | null = null;
  /** Ends the last attempt to connect, and its connection. */
  #attempt: AbortController | null = null;
  #onLost: () => void = () => {};
  #machines: readonly Machine[] = [];
  #isSettled = true;
  #state: StoreState = "connecting";
  #problem: string | null = null;
  #facts: ServerFacts | null = null;
  #retryMs = MIN_RETRY_MS;
  #ended: Promise<void> = Promise.resolve();

  constructor(deps: StoreDeps) {
    this.#deps = deps;
    this.clock = new StoreClock(deps.clock);
  }

  get state(): StoreState {
    return this.#state;
  }

  /** Why it is not connected; null: it is, or the first attempt is not over. */
  get problem(): string | null {
    return this.#problem;
  }

  /** As last seen; null: it was never connected. */
  get facts(): ServerFacts | null {
    return this.#facts;
  }

  /** All machines, this one included, as of the last answer. */
  get machines(): readonly Machine[] {
    return this.#machines;
  }

  /**
   * False: after a restart or a loss of data, the store grants nothing in running windows until the machines have reported,
   * and for some seconds in which they can join again.
   */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  get signerId(): string | null {
    return this.#deps.signer?.id ?? null;
  }

  get generation(): string | null {
    return this.#connection?.generation ?? null;
  }

  key(...parts: readonly string[]): string {
    return [this.#deps.store.prefix, ...parts].join(":");
  }

  start(): void {
    this.#state = "connecting";
    this.#problem = null;
    this.#ended = this.#run();
  }

  /** Says why this machine does not connect. start() may follow later. */
  markUnusable(problem: string): void {
    this.#noteFailure(new StoreRefusal(problem));
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#disconnect("keybearer is stopping");
    this.#attempt?.abort();
    await this.#ended;
  }

  /** The first call on a connection must report everything that this machine holds. */
  async grant(asks: readonly GrantAsk[], presence: Presence): Promise<GrantReply> {
    const { client, name, generation } = this.#connected();
    const { signer } = this.#deps;
    const keys = [this.key("generation"), this.key("machines"), ...asks.map(({ key }) => key)];
    const call = {
      id: this.#deps.file.id,
      connection: name,
      generation,
      published: presence.published ?? undefined,
      keys: presence.keys.slice(0, MAX_KEYS),
      ...this.#signed(presence),
      asks: asks.map(({ key: _, isConcurrent, ...ask }) => ({ ...ask, is_concurrent: isConcurrent })),
    };
    const reply = await this.#call((texts) => client.runScript(GRANT, keys, texts), call);
    // Only now: a store that lets machines join, and then refuses their calls, must not be asked all the time.
    this.#retryMs = MIN_RETRY_MS;
    // Lua has one kind of table, so an empty list arrives as an empty object.
    this.#machines = asList(reply.machines)
      .slice(0, MAX_MACHINES)
      .flatMap((one) => parseMachine(one, signer));
    this.#isSettled = reply.settled === true;
    const answers = asList(reply.answers);
    return { time: reply.time, answers: asks.map((ask, at) => parseAnswer(asFields(answers[at]), ask)) };
  }

  async publish(entries: readonly string[], from: string | null, to: string): Promise<string | null> {
    const { client, name } = this.#connected();
    const id = this.#deps.file.id;
    const keys = [this.key("machines"), this.key("positions"), this.key("records", id)];
    const call = { id, connection: name, from: from ?? "", to, keep: KEEP_RECORDS_MS };
    const signed = (text: string) => [text, this.#deps.signer?.sign("record", id, text) ?? ""];
    const { position } = await this.#call(
      (texts) => client.runScript(PUBLISH, keys, [...texts, ...entries.flatMap(signed)]),
      call,
    );
    return typeof position === "string" && position !== "" ? position : null;
  }

  async read(
    after: ReadonlyMap<string, string | null>,
    max: number,
  ): Promise<ReadonlyMap<string, readonly StreamEntry[]>> {
    const { client } = this.#connected();
    const found = new Map<string, readonly StreamEntry[]>();
    const machines = new Map([...after.keys()].map((id) => [this.key("records", id), id]));
    const ids = [...after.values()].map((entry) => entry ?? "0-0");
    const call = client.call("XREAD", "COUNT", String(max), "STREAMS", ...machines.keys(), ...ids);
    for (const stream of asList(await this.#inTime(call))) {
      const [name, entries] = asList(stream);
      const machine = machines.get(String(name));
      if (machine === undefined) continue;
      found.set(
        machine,
        asList(entries).map((entry) => streamEntry(entry, machine, this.#deps.signer)),
      );
    }
    return found;
  }

  /** The owner says that a machine is lost. What it holds of these windows, and did not use, can be granted again. */
  async release(machine: string, windows: readonly string[]): Promise<"released" | "unknown" | "present"> {
    const { client } = this.#connected();
    const keys = [this.key("machines"), ...windows];
    const call = { id: this.#deps.file.id, lost: machine };
    const { problem } = await this.#call((texts) => client.runScript(RELEASE, keys, texts), call);
    return problem === "unknown" || problem === "present" ? problem : "released";
  }

  clockOffset(): number {
    return this.clock.offset();
  }

  /** What this machine says of itself, as the others believe it. */
  #signed({ published, keys, rotated }: Presence): {
    readonly statement?: string;
    readonly signature?: string;
  } {
    const { signer, machine, file } = this.#deps;
    if (signer === null) return {};
    const statement = JSON.stringify({ name: machine, published, keys: keys.slice(0, MAX_KEYS), rotated });
    return { statement, signature: signer.sign("presence", file.id, statement) };
  }

  #connected(): Connection {
    if (this.#connection === null) throw new StoreError(this.#problem ?? "the store is not connected yet");
    return this.#connection;
  }

  async #call(send: (texts: readonly string[]) => Promise<unknown>, call: object): Promise<Reply> {
    const sentAt = this.clock.mark();
    const reply = await this.#inTime(send([JSON.stringify(call)]).then(parseReply));
    const clockProblem = this.clock.problemWith(reply.time);
    if (clockProblem !== null) throw this.#disconnect(clockProblem);
    const time = this.clock.learn(reply.time, sentAt);
    if (reply.problem === "generation") throw this.#disconnect("the store was restarted or lost its data");
    if (reply.problem === "released") {
      this.#deps.onForfeited();
      throw this.#disconnect("the owner said that this machine is lost");
    }
    if (reply.problem === "superseded") {
      this.#retryMs = SUPERSEDED_RETRY_MS;
      this.#deps.onForfeited();
      throw this.#disconnect("another daemon uses the identity of this machine");
    }
    return { ...reply, time };
  }

  async #inTime<T>(answer: Promise<T>): Promise<T> {
    const connection = this.#connection;
    try {
      return await within(CALL_MS, answer);
    } catch (error) {
      if (this.#connection === connection) this.#disconnect(errorMessage(error));
      throw new StoreError(errorMessage(error));
    }
  }

  #disconnect(problem: string): StoreError {
    const connection = this.#connection;
    if (connection !== null) {
      this.#connection = null;
      connection.client.destroy();
      this.#noteFailure(new StoreError(problem));
      this.#onLost();
    }
    return new StoreError(problem);
  }

  /** Connects, and connects again whenever the connection was lost. */
  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const lost = new Promise<void>((resolve) => {
        this.#onLost = resolve;
      });
      if (await this.#connect()) {
        this.#deps.onConnect();
        await lost;
      }
      // An abort ends the loop.
      await pause(this.#retryMs, null, { signal, ref: false }).catch(() => {});
      this.#retryMs = Math.min(this.#retryMs * 2, MAX_RETRY_MS);
    }
  }

  async #connect(): Promise<boolean> {
    const { store, password, log } = this.#deps;
    const attempt = new AbortController();
    this.#attempt = attempt;
    try {
      const onLost = (error: Error) => {
        if (this.#attempt === attempt) this.#disconnect(errorMessage(error));
      };
      const client = await within(CONNECT_MS, StoreClient.open(store, password, attempt.signal, onLost));
      const { run, ...facts } = serverFacts(String(await within(CALL_MS, client.call("INFO"))));
      const connections = await this.#deps.file.nextConnection();
      const name = connections.at(-1) ?? "";
      const generation = await this.#join(client, connections, run, facts.appendOnly);
      this.#deps.file.confirmConnection();
      if (this.#stop.signal.aborted) throw new StoreError("keybearer is stopping");
      this.#connection = { client, name, generation };
      this.#facts = facts;
      this.#state = "connected";
      this.#problem = null;
      const { server, version } = facts;
      log.info({ store: store.url, server, version }, "connected to the shared store");
      return true;
    } catch (error) {
      attempt.abort();
      this.#noteFailure(error);
      return false;
    }
  }

  /** Returns the generation. */
  async #join(
    client: StoreClient,
    connections: readonly string[],
    run: string,
    appendOnly: boolean,
  ): Promise<string> {
    const { file, machine, timezone } = this.#deps;
    const sentAt = this.clock.mark();
    const call = {
      id: file.id,
      name: machine,
      connection: connections.at(-1),
      timezone,
      run,
      append_only: appendOnly,
      connections,
      known: file.knownMachines,
      is_new: file.isNew,
      new_generation: randomBytes(8).toString("hex"),
    };
    const keys = [this.key("generation"), this.key("machines")];
    const reply = parseReply(await within(CALL_MS, client.runScript(JOIN, keys, [JSON.stringify(call)])));
    if (reply.problem === "copied") {
      this.#deps.onForfeited();
      await file.renew();
      throw new StoreError("another daemon used the identity of this machine, which gets a new one");
    }
    if (reply.problem === "timezone")
      throw new StoreRefusal(
        `the other machines count in the time zone ${text(reply.timezone)}, this one in ${timezone}. ` +
          "shared.timezone must be the same on all machines",
      );
    const { generation } = reply;
    if (typeof generation !== "string" || generation === "")
      throw new StoreError("the store's answer is damaged");
    if (reply.released === true) this.#deps.onForfeited();
    const clockProblem = this.clock.problemWith(reply.time);
    if (clockProblem !== null) throw new StoreRefusal(clockProblem);
    this.clock.learn(reply.time, sentAt);
    return generation;
  }

  #noteFailure(error: unknown): void {
    // A StoreRefusal has our own words. Other errors may quote the server.
    const message = errorMessage(error);
    const problem = error instanceof StoreRefusal ? message : printable(message, MAX_PROBLEM);
    const isNew = problem !== this.#problem;
    const isRefused = error instanceof StoreRefusal || NOT_ALLOWED.test(problem);
    this.#state = isRefused ? "refused" : "unreachable";
    this.#problem = problem;
    const { log, store, onFailure } = this.#deps;
    if (isNew && !this.#stop.signal.aborted)
      log.warn({ store: store.url, problem }, "the shared store cannot be used");
    onFailure();
  }
}

/* What the store answers is checked and bounded: it may be hostile. */

/** An entry of a stream is its id, and a list of names and values. */
function streamEntry(value: unknown, machine: string, signer: Signer | null): StreamEntry {
  const [id, fields] = asList(value);
  const texts = asList(fields).map(String);
  const field = (name: string) => texts.find((_, at) => at % 2 === 1 && texts[at - 1] === name) ?? "";
  const text = field("record");
  const isVerified = signer?.isSigned("record", machine, text, field("signature")) ?? false;
  return { id: String(id), text, isVerified };
}

/** The largest sum that can occur; see MAX_AMOUNT in limits/counters.ts. */
const MAX_SUM = 1e14;

/** A machine never takes more than its own limit from an answer. */
function parseAnswer({ granted, parts }: JsonObject, { keep, limit }: GrantAsk): GrantAnswer {
  return {
    granted: Math.min(Math.max(amount(granted), keep), Math.max(keep, limit)),
    parts: asList(parts).slice(0, MAX_MACHINES).flatMap(parsePart),
  };
}

/** As `id granted used held`. */
function parsePart(value: unknown): Part[] {
  const found = /^([0-9a-f]{1,32}) (\d{1,15}) (\d{1,15}) \d{1,15}$/.exec(String(value));
  if (found === null) return [];
  const [, machine = "", granted, used] = found;
  return [{ machine, granted: Number(granted), used: Number(used) }];
}

function parseMachine(value: unknown, signer: Signer | null): Machine[] {
  const { id, seen, entry, gone, ...rest } = asFields(value);
  if (typeof id !== "string" || !/^[0-9a-f]{1,32}$/.test(id)) return [];
  const signature = signer === null ? null : checkSignature(id, rest, signer);
  const { name, published, keys, rotated } = signature === "valid" ? statementIn(rest) : rest;
  const isStopped = typeof published === "number" && published >= STOPPED;
  const machine = {
    id,
    // It is printed in commands to type.
    name: text(name).replace(/[^\w.-]/g, "-"),
    lastContact: amount(seen),
    published: typeof published === "number" ? amount(isStopped ? seen : published) : null,
    isStopped,
    lastEntry: typeof entry === "string" && ENTRY_ID.test(entry) ? entry : null,
    keys: asList(keys).slice(0, MAX_KEYS).map(text),
    isLost: gone === true,
    isUnreported: rest.unreported === true,
    signature,
    rotated: signature === "valid" ? parseRotatedKeys(rotated) : [],
  };
  return [machine];
}

/** null: another machine named this one to a store that lost its data, so its own words are not there yet. */
function checkSignature(id: string, fields: JsonObject, signer: Signer): Signature | null {
  const { statement, signature, unreported } = fields;
  if (unreported === true && statement === undefined) return null;
  if (typeof statement !== "string" || typeof signature !== "string") return "missing";
  return signer.isSigned("presence", id, statement, signature) ? "valid" : "wrong";
}

function statementIn({ statement }: JsonObject): JsonObject {
  return parseObject(String(statement)) ?? {};
}

function amount(value: unknown): number {
  if (typeof value !== "number" || !Number.isFinite(value)) return 0;
  return Math.min(Math.max(Math.round(value), 0), MAX_SUM);
}

function text(value: unknown): string {
  return printable(String(value ?? ""), MAX_NAME);
}
