import type { Secret } from "./secret.ts";

/** Where a secret comes from, as config.yaml says it. config/ writes these, keys/ reads from them. */
export type KeySource =
  | { readonly kind: "literal"; readonly secret: Secret }
  | { readonly kind: "env"; readonly name: string }
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "command"; readonly argv: readonly [string, ...string[]] }
  | { readonly kind: "keychain"; readonly service: string; readonly account: string };

/** What became of a tool's key when it was read. */
export type KeyState =
  | { readonly state: "ready"; readonly key: Secret }
  /** The source could not be read, or what it holds cannot be a key. */
  | {
      readonly state: "unavailable";
      readonly reason: string;
      /** There is nothing at the source, or no key: a new key belongs there. */
      readonly absent?: boolean;
      /** What to type, where the source does not decide that. */
      readonly next?: string;
    }
  /** A known key was paired with somewhere new; it waits for `keybearer trust`. */
  | { readonly state: "needs-trust"; readonly what: string; readonly from: string; readonly to: string };

/** A source in words, for messages: never the secret itself. */
export function describeSource(source: KeySource): string {
  switch (source.kind) {
    case "literal":
      return `the key itself (${source.secret.fingerprint})`;
    case "env":
      return `env:${source.name}`;
    case "file":
      return `file:${source.path}`;
    case "command":
      // Only the program: an argument may hold what it should not.
      return `command ${source.argv[0]}`;
    case "keychain":
      return `keychain:${source.service}/${source.account}`;
  }
}
