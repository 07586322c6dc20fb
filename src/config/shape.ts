import type { KeySource } from "../core/key-source.ts";

/**
 * config.yaml once read: every setting with its meaning and its default. All of it is frozen.
 * Names are those of the file; durations are milliseconds, money is micro-dollars, times are milliseconds UTC.
 */
export interface Config {
  /** Where tools connect. Loopback only. Default localhost:5397, both 127.0.0.1 and [::1]. */
  readonly listen: Listen;
  readonly dashboard: Dashboard;
  /** By name. `gateway: URL` is short for one gateway called main. At least one. */
  readonly gateways: Named<Gateway>;
  /** By name. At least one. */
  readonly tools: Named<Tool>;
  /** $ per million tokens, over the built-in list, by model name. Default none. */
  readonly prices: Named<Price>;
  readonly usage: Usage;
  readonly log: Log;
}

/** A frozen object without a prototype, so that no name in the file can reach Object.prototype. */
export type Named<T> = Readonly<Record<string, T>>;

export interface Listen {
  /** localhost means 127.0.0.1 and [::1] together; neither is served without the other. */
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
  /** As it stands in the file; tools refer to it by this. */
  readonly name: string;
  /** The OpenAI-style address, ending in its version segment, without a slash at the end. */
  readonly baseUrl: string;
  /** The messages-style address, to which /v1/messages is added. Default: base_url less its version segment. */
  readonly messagesUrl: string;
  /**
   * Which header the key travels in. auto: Bearer for OpenAI style; for messages the caller's own header, Bearer if
   * none or both; x-goog-api-key for Gemini. Default auto.
   */
  readonly keyHeader: "auto" | "bearer" | "x-api-key";
  /** true: pass upgrades through. Default false: answered 426, from which real clients fall back. */
  readonly websockets: boolean;
  /**
   * Outbound HTTP proxy, always used as a tunnel. Default none; proxies in the environment are ignored. Before a
   * gateway that is called by http, only one on this machine.
   */
  readonly proxy: string | null;
  /** An authority whose certificates are accepted besides those Node brings along. Default none. */
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
  /** What the file holds. Empty until load.ts has read it. */
  readonly pem: string;
}

export interface Timeouts {
  /** Address look-up, connection and TLS together. Default 10s. */
  readonly connect: number;
  /** From the last byte sent to the first byte of the answer. Default 10m. */
  readonly firstByte: number;
  /** The longest silence within an answer. Default 5m. */
  readonly idle: number;
}

export interface Group {
  /** Factor on the list price. Default 1. */
  readonly multiplier: number;
  /** Models of the group; `*` stands for any text. Default: all. */
  readonly models: readonly string[];
  /** Default true. */
  readonly enabled: boolean;
}

export type ConsoleKind = "sub2api" | "new-api" | "one-api" | "litellm" | "openrouter";

export interface Console {
  /** Default: detected from the gateway's answers. */
  readonly kind: ConsoleKind | null;
  /** The console's address. Default: the origin of base_url. */
  readonly url: string;
  /** The accounts there, at least one. What each kind needs; secrets come from a source, or by `keybearer mirror login`. */
  readonly logins: readonly ConsoleLogin[];
  /** When to synchronise, in cron's five fields. Default every five minutes. */
  readonly schedule: string;
}

export interface ConsoleLogin {
  /** Of an account in a list of several; null: there is no list. */
  readonly name: string | null;
  /** sub2api. */
  readonly email: string | null;
  /** new-api: the numeric user id. */
  readonly user: string | null;
  /** sub2api: where the password comes from. Default none: `keybearer mirror login` asks for it. */
  readonly password: KeySource | null;
  /** new-api and one-api: the personal access token. Default none. */
  readonly accessToken: KeySource | null;
  /** sub2api, where a captcha keeps programs from logging in. Default none. */
  readonly refreshToken: KeySource | null;
}

export interface Tool {
  /** As it stands in the file, and as commands, log and usage call it. */
  readonly name: string;
  /** The gateway's name. May be left out where there is one gateway. */
  readonly gateway: string;
  /** The group's name on that gateway. Default none: no local restriction. */
  readonly group: string | null;
  /** Default keychain:keybearer/<tool>. */
  readonly key: KeySource;
  /** SHA-256 of each local token, in lower-case hex. Default none: the tool cannot be used yet. */
  readonly tokens: readonly string[];
  /** Also accept the token as /t/<token>/… Default false. */
  readonly tokenInUrl: boolean;
  /** The program that owns the connection, by absolute path. Default none. */
  readonly process: string | null;
  /** Exact origins of desktop clients that send one. Default none. */
  readonly allowOrigins: readonly string[];
  /** For the settings that `use` prints. Default none. */
  readonly model: string | null;
  readonly limits: Limits;
  /** Total spend, ever, in micro-dollars. Default unlimited. */
  readonly quota: number | null;
  /** The moment from which the tool is expired. Default permanent. */
  readonly expires: number | null;
  /** Default true. */
  readonly enabled: boolean;
  /** Ask streams for their usage, and take the extra chunk out again. Default false. */
  readonly askUsage: boolean;
  /** Estimate tokens where the gateway reports none. Default false. */
  readonly estimate: boolean;
  /** The key is used on other machines on purpose: no leak alarm. Default false. */
  readonly keysElsewhere: boolean;
  /** The key is used by something that cannot pass here: console rows only. Default false. */
  readonly watchOnly: boolean;
}

export type Period = "second" | "minute" | "hour" | "day" | "month";

export interface Rate {
  /** Requests, tokens, or micro-dollars. */
  readonly most: number;
  /** The window it is counted in. */
  readonly per: Period;
}

export interface Limits {
  /** Default none. */
  readonly requests: readonly Rate[];
  /** Input and output together. Default none. */
  readonly tokens: readonly Rate[];
  /** In micro-dollars. Default none. */
  readonly spend: readonly Rate[];
  /** Calls at once. Default unlimited. */
  readonly concurrent: number | null;
  /** How long a request waits for room before it is refused. Default 0. */
  readonly wait: number;
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

export interface Usage {
  /** How long records are kept. Default 400d. */
  readonly keep: number;
  /** full survives a power cut, at a cost per request. Default normal. */
  readonly sync: "normal" | "full";
}

export interface Log {
  /** Default info. */
  readonly level: "trace" | "debug" | "info" | "warn" | "error";
}
