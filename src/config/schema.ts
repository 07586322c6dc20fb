import { isDeepStrictEqual } from "node:util";
import type { Secret } from "../core/secret.ts";
import { DAY_MS, MINUTE_MS } from "../core/units.ts";

/**
 * config.yaml after parsing: every setting with its meaning and its default. All of it is frozen. Durations are
 * milliseconds, money is micro-dollars, times are milliseconds UTC.
 */
export interface Config {
  /** Where tools connect. Loopback only. Default localhost:5397, both 127.0.0.1 and [::1]. */
  readonly listen: Listen;
  readonly dashboard: Dashboard;
  /** How long a stop lets requests finish before it cuts them. Default 10s. */
  readonly drain: number;
  /** By name. `gateway: URL` is short for one gateway called main. At least one. */
  readonly gateways: Named<Gateway>;
  /** By name. At least one. */
  readonly tools: Named<Tool>;
  /** $ per million tokens, over the built-in list, by model name. Default none. */
  readonly prices: Named<Price>;
  /** Limits and records across machines. Default none: this machine alone. */
  readonly shared: Shared | null;
  /** Of the system service: who may call and steer. Default none. */
  readonly owners: readonly Owner[];
  readonly usage: Usage;
  /** Where events are reported. Default: the desktop only. */
  readonly notify: Notify;
  /** Where metrics can be read. Default nowhere. */
  readonly metrics: Metrics | null;
  readonly log: Log;
}

/** A user of this machine. */
export interface Owner {
  readonly name: string;
  /** null until load.ts has looked it up. */
  readonly uid: number | null;
}

/** A frozen object without a prototype: no name in the file reaches Object.prototype. */
export type Named<T> = Readonly<Record<string, T>>;

export interface Listen {
  /** localhost means 127.0.0.1 and [::1] together. */
  readonly host: "localhost" | "127.0.0.1" | "::1";
  /** 0 picks a free port. */
  readonly port: number;
}

export interface Dashboard {
  /** Its own loopback address. Default localhost:5398. */
  readonly listen: Listen;
  /** asked: opened by `keybearer open`, closed when unused. Default asked; `dashboard: false` is never. */
  readonly when: "asked" | "always" | "never";
}

export interface Gateway {
  /** Tools refer to it by this. */
  readonly name: string;
  /** The OpenAI-style address. It ends in its version segment, without a slash. */
  readonly baseUrl: string;
  /** The messages-style address, without /v1/messages. Default: base_url without its version segment. */
  readonly messagesUrl: string;
  /**
   * The header that carries the key. auto: Bearer for OpenAI style; for messages the caller's own header, Bearer if there is
   * none or both; x-goog-api-key for Gemini. Default auto.
   */
  readonly keyHeader: "auto" | "bearer" | "x-api-key";
  /** True: pass upgrades through. Default false: answered 426, from which real clients fall back. */
  readonly websockets: boolean;
  /**
   * Outbound HTTP proxy, always used as a tunnel. Default none; proxies in the environment are ignored. For a gateway that
   * is called by http it must be on this machine.
   */
  readonly proxy: string | null;
  /** Its certificates are accepted besides those of Node's own authorities. Default none. */
  readonly authority: CertificateAuthority | null;
  readonly timeouts: Timeouts;
  /** Plan groups as the console shows them. Default none. */
  readonly groups: Named<Group>;
  /** The console whose usage log is mirrored. Default none. */
  readonly console: Console | null;
}

export interface CertificateAuthority {
  /** Absolute. */
  readonly file: string;
  /** The file's content. Empty until load.ts has read it. */
  readonly pem: string;
}

export interface Timeouts {
  /** Name lookup, connection and TLS together. Default 10s. */
  readonly connect: number;
  /** How long a request is tried in all while no connection can be made. 0: it is tried once. Default 20s. */
  readonly retryConnect: number;
  /** From the last byte sent to the first byte of the response. Default 10m. */
  readonly firstByte: number;
  /** The longest silence within a response. Default 5m. */
  readonly idle: number;
}

export interface Group {
  /** Factor on the list price. Default 1. */
  readonly multiplier: number;
  /** `*` stands for any text. Default: all models. */
  readonly models: readonly string[];
  /** Default true. */
  readonly enabled: boolean;
}

export const CONSOLE_KINDS = ["sub2api", "new-api", "one-api", "litellm"] as const;
export type ConsoleKind = (typeof CONSOLE_KINDS)[number];

export interface Console {
  /** Default: detected from the gateway's answers. */
  readonly kind: ConsoleKind | null;
  /** The console's address. Default: the origin of base_url. */
  readonly url: string;
  /** The accounts, at least one. Secrets come from a key source, or from `keybearer mirror login`. */
  readonly logins: readonly ConsoleLogin[];
  /** When to synchronize, in cron's five fields. null: every minute while tools are active, otherwise every five. */
  readonly schedule: string | null;
}

export interface ConsoleLogin {
  /** Of an account in a list of several. null: there is no list. */
  readonly name: string | null;
  /** sub2api. */
  readonly email: string | null;
  /** new-api: the numeric user id. */
  readonly user: string | null;
  /** sub2api. Default none: `keybearer mirror login` asks for it. */
  readonly password: KeySource | null;
  /** new-api and one-api. Default none. */
  readonly accessToken: KeySource | null;
  /** sub2api with a captcha. Default none. */
  readonly refreshToken: KeySource | null;
}

export interface Tool {
  readonly name: string;
  /** Default: the only gateway. */
  readonly gateway: string;
  /** A group of that gateway. Default none: no local restriction. */
  readonly group: string | null;
  /** Default keychain:keybearer/<tool>. */
  readonly key: KeySource;
  /** Default none: the tool cannot be used, except by its `process`. */
  readonly tokens: readonly Token[];
  /** Also accept the token in the path, /t/<token>/… Default false. */
  readonly tokenInUrl: boolean;
  /** The program that owns the connection, by absolute path. Default none. */
  readonly process: string | null;
  /** Exact origins of desktop clients that send one. Default none. */
  readonly allowOrigins: readonly string[];
  /** Used by `keybearer use`. Default none. */
  readonly model: string | null;
  readonly limits: Limits;
  /** Total spend, ever, in micro-dollars. Default unlimited. */
  readonly quota: number | null;
  /** The first moment at which the tool is expired. Default never. */
  readonly expires: number | null;
  /** Default true. */
  readonly enabled: boolean;
  /** Ask streams for their usage, and remove the extra chunk again. Default false. */
  readonly askUsage: boolean;
  /** Estimate tokens where the gateway reports none. Default false. */
  readonly estimate: boolean;
  /** The key is also used on other machines: no leak alarm. Default false. */
  readonly keysElsewhere: boolean;
  /** The key is used by something that cannot go through keybearer: console rows only. Default false. */
  readonly watchOnly: boolean;
  /** The key is rotated through the console when it is this old, in milliseconds. Default never. */
  readonly rotateEvery: number | null;
  /** What happens when a console row shows for certain that the key leaked. Default report: an alarm. */
  readonly onLeak: OnLeak;
  /** Its limits count across machines. Without effect if `shared` is not set. Default true. */
  readonly shared: boolean;
  /** Of the system service: the only owner who may call as this tool. Default every owner. */
  readonly owner: string | null;
}

type OnLeak = "report" | "rotate";

/** A local token. Only its hash is kept. */
export interface Token {
  /** Default: the first digits of the hash. */
  readonly name: string;
  /** SHA-256 in lower-case hex. */
  readonly hash: string;
  /** The day it was made, such as 2026-11-16. Default unknown. */
  readonly created: string | null;
}

export const PERIODS = ["second", "minute", "hour", "day", "month"] as const;

export type Period = (typeof PERIODS)[number];

export interface Rate {
  /** Requests, tokens or micro-dollars. */
  readonly max: number;
  readonly per: Period;
}

export interface Limits {
  /** Default none. */
  readonly requests: readonly Rate[];
  /** Input and output together. Default none. */
  readonly tokens: readonly Rate[];
  /** In micro-dollars. Default none. */
  readonly spend: readonly Rate[];
  /** Requests at once. Default unlimited. */
  readonly concurrent: number | null;
  /** How long a request waits for capacity before it is refused. Default 0. */
  readonly wait: number;
  /** What one run of an agent may use in all. Default unlimited. */
  readonly session: SessionLimits | null;
}

/** At least one of them is set. */
export interface SessionLimits {
  readonly requests: number | null;
  /** Input and output together. */
  readonly tokens: number | null;
  /** In micro-dollars. */
  readonly spend: number | null;
}

/** Micro-dollars per million tokens. */
export interface Price {
  readonly input: number;
  readonly output: number;
  /** Default: the price of input. */
  readonly cacheRead: number;
  /** Default: the price of input. */
  readonly cacheWrite: number;
}

export interface Shared {
  readonly store: SharedStore;
  /** The same on all machines. They sign their records with it. Default none. */
  readonly secret: KeySource | null;
  /** What the other machines call this one. Default: its host name. */
  readonly machine: string | null;
  /** IANA name of the zone in which days and months begin for all machines. Default: the system's. */
  readonly timezone: string | null;
  /** grant: spend what this machine was granted, then refuse. refuse: refuse at once. Default grant. */
  readonly whenUnreachable: "grant" | "refuse";
}

/** A Redis or Valkey server. */
export interface SharedStore {
  /** rediss://host:port, or redis:// on this machine. /1 to /15 at the end names another database than 0. */
  readonly url: string;
  /** Default: the server's default user. */
  readonly username: string | null;
  /** Default none. */
  readonly password: KeySource | null;
  /** Its certificates are accepted besides those of Node's own authorities. Default none. */
  readonly authority: CertificateAuthority | null;
  /** All keys in the store begin with this and a colon. Default keybearer. */
  readonly prefix: string;
}

export interface Usage {
  /** How long records are kept. Default 400d. */
  readonly keep: number;
  /** full survives a power cut, at a cost per request. Default normal. */
  readonly sync: "normal" | "full";
  /**
   * Which folder the calling process works in: its whole path, its last part, or not at all. Default off: nothing is looked up.
   */
  readonly project: "path" | "name" | "off";
  /** The names that may answer for a model without counting as another one, by the name asked for. Default none. */
  readonly sameModels: Named<readonly string[]>;
}

export interface Log {
  /** Default info. */
  readonly level: "trace" | "debug" | "info" | "warn" | "error";
}

/** What an event is about. Names that people write in config.yaml and read in `keybearer events`. */
export const EVENT_KINDS = [
  "leak",
  "suspicion",
  "key-refused",
  "needs-trust",
  "limit",
  "expiry",
  "gateway-down",
  "log-unavailable",
  "mirror-blind",
  "config-rejected",
  "spending",
  "other-model",
] as const;

export type EventKind = (typeof EVENT_KINDS)[number];

export const WEBHOOK_KINDS = [
  "generic",
  "slack",
  "feishu",
  "dingtalk",
  "wecom",
  "telegram",
  "ntfy",
  "bark",
] as const;

export type WebhookKind = (typeof WEBHOOK_KINDS)[number];

export interface Webhook {
  readonly name: string;
  /** Default generic: Standard Webhooks. */
  readonly kind: WebhookKind;
  /** The whole address is a secret. */
  readonly url: KeySource;
  /** Signs the messages of generic, feishu and dingtalk; the access token of ntfy. Default none. */
  readonly secret: KeySource | null;
  /** The chat of telegram, the topic of ntfy, the device of bark. Default none. */
  readonly to: string | null;
  /** Outbound HTTP proxy, as for a gateway. */
  readonly proxy: string | null;
  /** Its certificates are accepted besides those of Node's own authorities. Default none. */
  readonly authority: CertificateAuthority | null;
}

/** Hours in which nothing is sent but what cannot wait. Minutes after midnight, local time; `from` may be after `to`. */
export interface QuietHours {
  readonly from: number;
  readonly to: number;
}

export interface Notify {
  /** Notifications of the desktop, where there is one. Default true. */
  readonly desktop: boolean;
  /** A program that gets each event as JSON. Default none. */
  readonly command: readonly [string, ...string[]] | null;
  readonly webhooks: Named<Webhook>;
  /** The channels of a kind: desktop, command and the webhooks' names. Empty: none. Default: every channel. */
  readonly events: Readonly<Partial<Record<EventKind, readonly string[]>>>;
  /** Default none. */
  readonly quiet: QuietHours | null;
}

export interface Metrics {
  /** Its own loopback address. */
  readonly listen: Listen;
  /** The SHA-256 of the token that a reader of another user sends. Default none: only the owner's user may read. */
  readonly token: string | null;
}

/** Where a secret comes from. */
export type KeySource =
  | { readonly kind: "literal"; readonly secret: Secret }
  | { readonly kind: "env"; readonly name: string }
  | { readonly kind: "file"; readonly path: string }
  /** A credential that systemd gives the service: a file in $CREDENTIALS_DIRECTORY. */
  | { readonly kind: "credential"; readonly name: string }
  | { readonly kind: "command"; readonly argv: readonly [string, ...string[]] }
  | { readonly kind: "keychain"; readonly service: string; readonly account: string };

export function isSameSource(one: KeySource, other: KeySource): boolean {
  if (one.kind === "literal" && other.kind === "literal") return one.secret.equals(other.secret);
  return one.kind !== "literal" && isDeepStrictEqual(one, other);
}

/** A source for messages, never with the secret. */
export function describeSource(source: KeySource): string {
  switch (source.kind) {
    case "literal":
      return `the key itself (${source.secret.fingerprint})`;
    case "env":
      return `env:${source.name}`;
    case "file":
      return `file:${source.path}`;
    case "credential":
      return `credential:${source.name}`;
    case "command":
      // Without its arguments, which may hold a secret.
      return `command ${source.argv[0]}`;
    case "keychain":
      return `keychain:${source.service}/${source.account}`;
  }
}

/** 5397 spells KEYS on a telephone. */
export const DEFAULT_LISTEN: Listen = Object.freeze({ host: "localhost", port: 5397 });

export const DEFAULT_DASHBOARD: Dashboard = Object.freeze({
  listen: Object.freeze({ host: "localhost", port: 5398 }),
  when: "asked",
});

export const DEFAULT_TIMEOUTS: Timeouts = Object.freeze({
  connect: 10_000,
  retryConnect: 20_000,
  firstByte: 10 * MINUTE_MS,
  idle: 5 * MINUTE_MS,
});

export const DEFAULT_LIMITS: Limits = Object.freeze({
  requests: Object.freeze([]),
  tokens: Object.freeze([]),
  spend: Object.freeze([]),
  concurrent: null,
  wait: 0,
  session: null,
});

export const DEFAULT_PREFIX = "keybearer";

export const DEFAULT_DRAIN = 10_000;

export const DEFAULT_USAGE: Usage = Object.freeze({
  keep: 400 * DAY_MS,
  sync: "normal",
  project: "off",
  sameModels: Object.freeze(Object.create(null)),
});

export const DEFAULT_LOG: Log = Object.freeze({ level: "info" });

/** The name of the sandbox's gateway. */
export const SANDBOX = "sandbox";
