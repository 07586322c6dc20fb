import { createHash } from "node:crypto";
import type { Problem } from "../core/display.ts";
import { Secret, type SecretSet } from "../core/secret.ts";
import type { ConfigProblem } from "./problems.ts";
import type {
  CertificateAuthority,
  Config,
  Gateway,
  KeySource,
  SharedStore,
  Tool,
  Webhook,
} from "./schema.ts";

/** The result of reading a tool's key. */
export type KeyState =
  | { readonly state: "ready"; readonly key: Secret }
  /** The source could not be read, or what it holds cannot be a key. next null: the source decides what to type. */
  | ({
      readonly state: "unavailable";
      /** The source is empty or has no key: a new key belongs there. */
      readonly absent?: boolean;
    } & Problem)
  /** A known key was paired with something new; it waits for `keybearer trust`. */
  | { readonly state: "needs-trust"; readonly what: string; readonly from: string; readonly to: string };

const NOT_READ: KeyState = Object.freeze({
  state: "unavailable",
  problem: "the key was not read yet",
  next: null,
});

/**
 * One frozen, validated configuration with the keys that were read for it. A request takes one at its start and finishes
 * on it, whatever is saved meanwhile.
 */
export class Snapshot {
  /** Increases with every change of the configuration or its keys. */
  readonly revision: number;
  readonly config: Config;
  readonly warnings: readonly ConfigProblem[];
  /** All origins that some tool allows. */
  readonly origins: readonly string[];
  /** The tools that are identified by the calling program. */
  readonly processTools: readonly Tool[];
  /** The tools' keys, to remove them from texts. */
  readonly keys: SecretSet;
  readonly #keyStates: ReadonlyMap<string, KeyState>;
  readonly #tokens = new Map<string, Tool>();

  constructor(
    revision: number,
    config: Config,
    keyStates: ReadonlyMap<string, KeyState>,
    warnings: readonly ConfigProblem[],
  ) {
    const tools = Object.values(config.tools);
    this.revision = revision;
    this.config = config;
    this.warnings = warnings;
    this.origins = Object.freeze(tools.flatMap((tool) => tool.allowOrigins));
    this.processTools = Object.freeze(tools.filter((tool) => tool.process !== null));
    this.#keyStates = keyStates;
    for (const tool of tools) {
      for (const { hash } of tool.tokens) this.#tokens.set(hash, tool);
    }
    const states = tools.map((tool) => this.keyOf(tool));
    this.keys = Secret.together(states.flatMap((key) => (key.state === "ready" ? [key.key] : [])));
    Object.freeze(this);
  }

  keyOf(tool: Tool): KeyState {
    return this.#keyStates.get(tool.name) ?? NOT_READ;
  }

  gatewayOf(tool: Tool): Gateway {
    const gateway = this.config.gateways[tool.gateway];
    // checkReferences accepts no such configuration.
    if (gateway === undefined) throw new Error(`tool ${tool.name} has no gateway`);
    return gateway;
  }

  /** By the token's SHA-256 in hexadecimal digits. */
  toolByToken(hash: string): Tool | null {
    return this.#tokens.get(hash) ?? null;
  }

  /** null: config.yaml has no such secret. */
  consoleSecret(gateway: Gateway, account: string | null, secret: ConsoleSecret): KeyState | null {
    const isConfigured = consoleSources(gateway).some(
      (source) => source.account === account && source.secret === secret,
    );
    if (!isConfigured) return null;
    return this.#keyStates.get(consoleSecretName(gateway.name, account, secret)) ?? NOT_READ;
  }

  /** The password of the shared store; null: config.yaml has none. */
  sharedPassword(): KeyState | null {
    if ((this.config.shared?.store.password ?? null) === null) return null;
    return this.#keyStates.get(SHARED_PASSWORD) ?? NOT_READ;
  }

  /** The secret with which machines sign their records; null: config.yaml has none. */
  sharedSecret(): KeyState | null {
    if ((this.config.shared?.secret ?? null) === null) return null;
    return this.#keyStates.get(SHARED_SECRET) ?? NOT_READ;
  }

  /** The whole address of a webhook, or what signs its messages. null: config.yaml has no such secret. */
  webhookSecret(webhook: Webhook, secret: WebhookSecret): KeyState | null {
    if (webhook[secret] === null) return null;
    return this.#keyStates.get(webhookSecretName(webhook.name, secret)) ?? NOT_READ;
  }

  /** Whether the program that gets events may run. null: config.yaml has none. */
  notifyCommand(): KeyState | null {
    if (this.config.notify.command === null) return null;
    return this.#keyStates.get(NOTIFY_COMMAND) ?? NOT_READ;
  }
}

/** The name of a webhook's address or secret among the keys. No tool can have such a name. */
export function webhookSecretName(webhook: string, secret: WebhookSecret): string {
  return `webhook ${webhook} ${secret}`;
}

/** The name of the program that gets events. It is held like a secret until a person confirms it. */
export const NOTIFY_COMMAND = "notify command";

export type WebhookSecret = "url" | "secret";

/** The secrets that config.yaml names for a webhook. */
export function webhookSources({
  url,
  secret,
}: Webhook): readonly { readonly secret: WebhookSecret; readonly source: KeySource }[] {
  const address = { secret: "url", source: url } as const;
  return secret === null ? [address] : [address, { secret: "secret", source: secret }];
}

/** The name of the shared store's password among the keys. No tool can have such a name. */
export const SHARED_PASSWORD = "shared store password";
export const SHARED_SECRET = "shared secret";

export type ConsoleSecret = "password" | "access_token" | "refresh_token";

interface ConsoleSource {
  readonly account: string | null;
  readonly secret: ConsoleSecret;
  readonly source: KeySource;
}

/** The secrets that config.yaml names for a gateway's console. */
export function consoleSources(gateway: Gateway): readonly ConsoleSource[] {
  const found: ConsoleSource[] = [];
  for (const { name: account, password, accessToken, refreshToken } of gateway.console?.logins ?? []) {
    if (password !== null) found.push({ account, secret: "password", source: password });
    if (accessToken !== null) found.push({ account, secret: "access_token", source: accessToken });
    if (refreshToken !== null) found.push({ account, secret: "refresh_token", source: refreshToken });
  }
  return found;
}

/** The name of a console's secret among the keys. No tool can have such a name. */
export function consoleSecretName(gateway: string, account: string | null, secret: ConsoleSecret): string {
  return account === null ? `${gateway} console ${secret}` : `${gateway} console ${account} ${secret}`;
}

/** Where every secret of a configuration comes from. */
export function secretSources({ tools, gateways, shared, notify }: Config): readonly KeySource[] {
  const keys = Object.values(tools).map(({ key }) => key);
  const consoles = Object.values(gateways).flatMap(consoleSources);
  const stores = [shared?.store.password ?? null, shared?.secret ?? null];
  const webhooks = Object.values(notify.webhooks).flatMap(webhookSources);
  return [
    ...keys,
    ...[...consoles, ...webhooks].map(({ source }) => source),
    ...stores.filter((source) => source !== null),
  ];
}

/** Everything that decides who sees a secret: the origins, the proxy, and the authority that certifies them. */
export function listDestinations(
  { proxy, authority }: Pick<Gateway, "proxy" | "authority">,
  addresses: readonly string[],
): string[] {
  const destinations = new Set(addresses.map((address) => new URL(address).origin));
  // These are no addresses, so a trusted proxy is never taken for a trusted gateway.
  if (proxy !== null) destinations.add(`proxy ${proxy}`);
  if (authority !== null) destinations.add(describeAuthority(authority));
  return [...destinations];
}

/** The same for the shared store's password. Each database of a server has the same users. */
export function storeDestinations({ url, authority }: SharedStore): string[] {
  const { protocol, host } = new URL(url);
  const address = `${protocol}//${host}`;
  return authority === null ? [address] : [address, describeAuthority(authority)];
}

function describeAuthority({ file, pem }: CertificateAuthority): string {
  const digest = createHash("sha256").update(pem).digest("hex");
  return `ca_file ${file} (sha256 ${digest.slice(0, 16)})`;
}
