import type { KeySource, KeyState } from "../core/key-source.ts";
import { Secret, type SecretSet } from "../core/secret.ts";
import type { Problem } from "./problem.ts";
import type { Config, Gateway, Tool } from "./shape.ts";

/**
 * One frozen, checked configuration with the keys that were read for it. A request takes one at its start and
 * finishes on it, whatever is saved meanwhile.
 */
export interface Snapshot {
  /** Counts up with every configuration or set of keys that becomes active. */
  readonly revision: number;
  readonly config: Config;
  /** Warnings of the file this was made from. */
  readonly warnings: readonly Problem[];
  /** Every origin that some tool allows. */
  readonly origins: readonly string[];
  /** The tools that are known by the program that calls; mostly none, and then nobody looks. */
  readonly processTools: readonly Tool[];
  /** Every tool's key that could be read, to be taken out of what is written down. */
  readonly keys: SecretSet;
  keyOf(tool: Tool): KeyState;
  gatewayOf(tool: Tool): Gateway;
  /** The token that has this SHA-256, in hexadecimal digits. */
  tokenByHash(hash: string): KnownToken | null;
  /** A secret of an account at a gateway's console; null: config.yaml has none of this name. */
  consoleSecret(gateway: Gateway, account: string | null, secret: ConsoleSecret): KeyState | null;
}

/** A token that some tool has. */
export interface KnownToken {
  readonly tool: Tool;
  /** Its SHA-256 as it stands in the file, to be compared in constant time. */
  readonly hash: Uint8Array;
}

export type ConsoleSecret = "password" | "access_token" | "refresh_token";

/** What a console's secret goes by among the keys. No tool can have such a name. */
export function consoleSecretName(gateway: string, account: string | null, secret: ConsoleSecret): string {
  return account === null ? `${gateway} console ${secret}` : `${gateway} console ${account} ${secret}`;
}

interface ConsoleSource {
  readonly account: string | null;
  readonly secret: ConsoleSecret;
  readonly source: KeySource;
}

/** The secrets that config.yaml names for a gateway's console. */
export function consoleSources(gateway: Gateway): readonly ConsoleSource[] {
  return (gateway.console?.logins ?? []).flatMap((login) => {
    const all = [
      ["password", login.password],
      ["access_token", login.accessToken],
      ["refresh_token", login.refreshToken],
    ] as const;
    return all.flatMap(([secret, source]) =>
      source === null ? [] : [{ account: login.name, secret, source }],
    );
  });
}

const NOT_READ: KeyState = Object.freeze({ state: "unavailable", reason: "the key was not read yet" });

export function createSnapshot(
  revision: number,
  config: Config,
  keys: ReadonlyMap<string, KeyState>,
  warnings: readonly Problem[],
): Snapshot {
  const tokens = new Map<string, KnownToken>();
  for (const tool of Object.values(config.tools)) {
    for (const hash of tool.tokens) tokens.set(hash, { tool, hash: Buffer.from(hash) });
  }
  const keyOf = (tool: Tool) => keys.get(tool.name) ?? NOT_READ;
  const ready = Object.values(config.tools).flatMap((tool) => {
    const key = keyOf(tool);
    return key.state === "ready" ? [key.key] : [];
  });
  return Object.freeze({
    revision,
    config,
    warnings,
    origins: Object.freeze(Object.values(config.tools).flatMap((tool) => tool.allowOrigins)),
    processTools: Object.freeze(Object.values(config.tools).filter((tool) => tool.process !== null)),
    keys: Secret.together(ready),
    keyOf,
    gatewayOf: (tool: Tool) => {
      const gateway = config.gateways[tool.gateway];
      // references.ts lets no configuration pass in which this could happen.
      if (gateway === undefined) throw new Error(`tool ${tool.name} has no gateway`);
      return gateway;
    },
    tokenByHash: (hash: string) => tokens.get(hash) ?? null,
    consoleSecret: (gateway: Gateway, account: string | null, secret: ConsoleSecret) => {
      const isNamed = consoleSources(gateway).some((one) => one.account === account && one.secret === secret);
      return isNamed ? (keys.get(consoleSecretName(gateway.name, account, secret)) ?? NOT_READ) : null;
    },
  });
}
