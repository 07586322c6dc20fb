/** The shells whose way of setting a variable is known. */
export type Shell = "sh" | "fish" | "powershell" | "cmd";

/** What a text is written in; env is written in whichever shell is asked for. */
export type Format = Shell | "json" | "toml" | "yaml" | "javascript";

/** The multi-tool switching client cc-switch, and what it calls the programs it can set up. */
export type SwitchApp = "claude" | "codex" | "gemini" | "opencode";

/**
 * One program that can be pointed at keybearer, or why it cannot. Texts hold {root} (http://localhost:5397), {v1} (the same
 * with /v1), {base} (the one of the two that `base` names), {token}, {model} and {small}, a cheaper model: its whole line
 * goes where none is known and the client has one of its own.
 */
export interface Client {
  /** What --for takes. */
  readonly id: string;
  readonly name: string;
  /** Other beginnings or parts of a tool's name that mean this client. The id is always one. */
  readonly aliases?: readonly string[];
  /** What the base-URL field is called in this client. */
  readonly label: string;
  /** Where that field is: a menu, a file, the environment. */
  readonly where: string;
  /** root: without /v1. It depends on the client, not on the protocol. */
  readonly base: "root" | "v1";
  /** What the field takes where it is not the base URL alone. */
  readonly baseText?: string;
  /** Where the token goes. */
  readonly keyLabel: string;
  /** Where the model's name goes, and how it is written there; null: the client asks the gateway, or each call says it. */
  readonly modelLabel: string | null;
  readonly modelText?: string;
  /** Alternatives: one of them is enough, and takes all of its parts. None: the fields above are all there is. */
  readonly ways: readonly (readonly Part[])[];
  /** What people get wrong here. Sentences. */
  readonly notes: readonly string[];
  /** Which models suit it, the best first; without a match any does. */
  readonly prefers: readonly RegExp[];
  /** Default: cc-switch does not know it. */
  readonly app?: SwitchApp;
  /** Why it cannot be pointed at localhost. null: it can. */
  readonly unusable: string | null;
}

export type Part =
  | {
      readonly kind: "env";
      readonly set: readonly (readonly [name: string, text: string])[];
      /** To be taken out of the environment: it would win, or be sent beside the token. */
      readonly unset?: readonly string[];
    }
  | {
      readonly kind: "file";
      readonly path: string;
      readonly format: Format;
      readonly text: string;
    }
  /** Lines of a program of the person's own, or typed into a shell. */
  | { readonly kind: "code" | "command"; readonly format: Format; readonly text: string };

/** By maker: what a gateway calls its models is its own affair, but most keep these beginnings. */
export const CLAUDE: readonly RegExp[] = [/^claude-sonnet/i, /^claude.*sonnet/i, /^claude/i];
export const GPT: readonly RegExp[] = [/^gpt-\d.*codex(?!.*mini)/i, /^gpt-5(?!.*(?:mini|nano))/i, /^gpt/i];
export const GEMINI: readonly RegExp[] = [/^gemini.*pro/i, /^gemini/i];
export const ANY: readonly RegExp[] = [/^claude-sonnet/i, /^gpt-5(?!.*(?:mini|nano))/i];

/** A variable that no client knows by itself: for those that are told which one to read. */
export const KEYBEARER_TOKEN = ["KEYBEARER_TOKEN", "{token}"] as const;
