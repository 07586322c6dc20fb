/** A console of one kind with its gateway part, as a real server, so that one suite of cases can run over all kinds. */
export interface ConsoleDouble {
  readonly kind: DoubleKind;
  /** Origin of the console, and of its gateway part. */
  readonly url: string;
  /** YAML lines for `console:` below a gateway, without indentation; secrets as literals. */
  readonly config: readonly string[];
  /** What a person would log in with. */
  readonly login: DoubleLogin;
  /** Adds a key of the account; its whole text is the gateway key. Returns the console's own number of it. */
  addKey(options: KeyOptions): { readonly id: number };
  /** A request that somebody made: becomes a row. Returns what the client was handed as its id; null: nothing. */
  bill(use: Use): Billed;
  /** Rows written from now on are not listed until release(), and then as the newest, whatever their time. */
  hold(): void;
  release(): void;
  /** Logging is switched off by the operator: billed, but never listed. */
  logging: boolean;
  /** Its clock is so far ahead, in milliseconds: the Date header, and the time of rows written from now on. */
  skew: number;
  /** What console answers are from now on; null: its own. The gateway part goes on. */
  fault: Fault | null;
  /** Called with every console request before it is answered: the place to write rows while somebody walks. */
  onAsk: ((asked: Asked) => void) | null;
  /** Where redirects lead to: a line for each request and header that came there, with its value. */
  readonly thief: { readonly url: string; readonly seen: readonly string[] };
  readonly asked: readonly Asked[];
  /** Requests that came to its gateway part so far, answered or not: whoever wants to leave in the middle waits for it. */
  reached(): number;
  /** Rows that are listed now, of whatever type. */
  rows(): number;
  /** access: what is shown with requests is worthless from now on. all: what renews it is too; a person must act. */
  endSessions(which: "access" | "all"): void;
}

export type DoubleKind = "sub2api" | "new-api" | "one-api";

export interface DoubleLogin {
  readonly email: string;
  readonly password: string;
  /** The six digits of the second factor. */
  readonly code: string;
  /** The personal access token of new-api and one-api. */
  readonly accessToken: string;
  readonly user: string;
}

export interface KeyOptions {
  readonly name: string;
  readonly key: string;
  /** Default `default`. */
  readonly group?: string;
  /** Of the group. Default 1, or what the group had. */
  readonly multiplier?: number;
  /** Dollars. Default unlimited. */
  readonly quota?: number;
  /** Milliseconds. Default never. */
  readonly expiresAt?: number;
  readonly disabled?: boolean;
}

export interface Use {
  readonly key: string;
  readonly model: string;
  readonly stream: boolean;
  /** Without cache, as keybearer counts. */
  readonly input: number;
  readonly cacheRead?: number;
  readonly cacheWrite?: number;
  readonly output: number;
  /** What is taken from the account. */
  readonly dollars: number;
  /** Default: dollars less the group's multiplier. */
  readonly listDollars?: number;
  /** When it ended, by the test's clock. Default now. */
  readonly at?: number;
  /** Default: a new one as this kind makes them. */
  readonly requestId?: string;
  /** Rows of failed attempts before it, with the same id, where the console has such. */
  readonly errors?: number;
  readonly ip?: string;
  /** Default /v1/chat/completions. Rows of /v1/messages have the other meaning of input where the console mixes them. */
  readonly endpoint?: string;
  /** Milliseconds. Default 900. */
  readonly duration?: number;
  /** Money that came back, as a row of its own; only new-api has such. */
  readonly refund?: boolean;
}

export interface Billed {
  /** What the client was handed; "" where this version hands out nothing. */
  readonly requestId: string;
}

/**
 * 401: the credential is refused, in the way of this kind, which for some is HTTP 200. 429: so is the limit. shape: JSON
 * that no console answers. data: the right envelope around something else. slow: nothing comes, until the fault is over.
 * cut: the connection ends in the middle of the answer.
 */
export type Fault = "html" | "401" | "429" | "empty" | "shape" | "data" | "slow" | "cut" | "redirect" | "500";

export interface Asked {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly at: number;
  /** A credential was shown, whatever it was worth. */
  readonly credential: boolean;
  /** Without the value of the credential. */
  readonly headers: Readonly<Record<string, string>>;
}

/** What every kind can be told at its start. */
export interface DoubleOptions {
  readonly now?: () => number;
  /** false: no limit on how often it may be asked. */
  readonly limits?: boolean;
  /** Dollars that the account has. Default 50. */
  readonly balance?: number;
}
