import type { Agent } from "node:http";
import { addressProblem, webhookSecretProblem } from "../config/notify.ts";
import type { Config, Webhook, WebhookKind } from "../config/schema.ts";
import { type KeyState, type Snapshot, secretSources } from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import type { Problem } from "../core/display.ts";
import type { Secret } from "../core/secret.ts";
import { createSingleUseAgent } from "../proxy/agents.ts";
import { runCommand } from "./command.ts";
import { type Desktop, sendToDesktop } from "./desktop.ts";
import type { Message, Outcome } from "./message.ts";
import { post } from "./post.ts";
import { judgeReply, WEBHOOKS } from "./webhooks.ts";

export type ChannelKind = "desktop" | "command" | WebhookKind;

/** One place to which messages go, as one configuration describes it. */
export interface Channel {
  readonly name: string;
  readonly kind: ChannelKind;
  /** Why nothing can be sent now; null: it can. */
  readonly blocked: Blocked | null;
  /** Between two messages. */
  readonly paceMs: number;
  /** One attempt. Never rejects. */
  send(message: Message, signal: AbortSignal): Promise<Outcome>;
}

export interface Blocked extends Problem {
  /** held: a person has to confirm it. unavailable: its secret cannot be read or used. */
  readonly state: "held" | "unavailable";
}

export interface ChannelDeps {
  readonly desktop: Desktop;
  /** For the program that gets events. */
  readonly env: NodeJS.ProcessEnv;
  readonly now: () => number;
  /** Default 10 s for a webhook and the desktop, 30 s for the command. */
  readonly timeoutMs?: number | undefined;
}

const SEND_TIMEOUT_MS = 10_000;
const COMMAND_TIMEOUT_MS = 30_000;

/** The channels of a configuration, in the order in which they are shown. */
export function createChannels(snapshot: Snapshot, deps: ChannelDeps): readonly Channel[] {
  const { desktop, command, webhooks } = snapshot.config.notify;
  const channels: Channel[] = [];
  if (desktop) channels.push(desktopChannel(deps));
  if (command !== null) channels.push(commandChannel(command, snapshot, deps));
  for (const webhook of Object.values(webhooks)) channels.push(webhookChannel(webhook, snapshot, deps));
  return channels;
}

function desktopChannel({ desktop, timeoutMs = SEND_TIMEOUT_MS }: ChannelDeps): Channel {
  return {
    name: "desktop",
    kind: "desktop",
    blocked: null,
    paceMs: 0,
    send: (message, signal) => sendToDesktop(desktop, message, timeoutMs, signal),
  };
}

function commandChannel(
  argv: readonly [string, ...string[]],
  snapshot: Snapshot,
  { env, timeoutMs = COMMAND_TIMEOUT_MS }: ChannelDeps,
): Channel {
  return {
    name: "command",
    kind: "command",
    blocked: findBlocked(snapshot.notifyCommand()),
    paceMs: 0,
    send: (message, signal) =>
      runCommand(argv, message, { env: withoutSecrets(env, snapshot.config), timeoutMs, signal }),
  };
}

/** Without the variables that hold keys. */
function withoutSecrets(env: NodeJS.ProcessEnv, config: Config): NodeJS.ProcessEnv {
  const named = secretSources(config).flatMap((source) => (source.kind === "env" ? [source.name] : []));
  return Object.fromEntries(Object.entries(env).filter(([name]) => !named.includes(name)));
}

function webhookChannel(
  webhook: Webhook,
  snapshot: Snapshot,
  { now, timeoutMs = SEND_TIMEOUT_MS }: ChannelDeps,
): Channel {
  const { name, kind, to, proxy, authority } = webhook;
  const address = snapshot.webhookSecret(webhook, "url");
  const signing = snapshot.webhookSecret(webhook, "secret");
  const url = readyKey(address)?.reveal() ?? "";
  const secret = readyKey(signing)?.reveal() ?? null;
  const blocked =
    findBlocked(address) ??
    findBlocked(signing) ??
    unusable(addressProblem(kind, url)) ??
    (secret === null ? null : unusable(webhookSecretProblem(kind, secret)));
  let agent: Agent | null = null;
  return {
    name,
    kind,
    blocked,
    paceMs: WEBHOOKS[kind].paceMs,
    async send(message, signal) {
      const outgoing = WEBHOOKS[kind].request(message, { url, secret, to }, now());
      // Made once, and only if something is sent: Node takes milliseconds to read its root certificates.
      const route = { proxy, authority, timeouts: { connect: timeoutMs } };
      agent ??= createSingleUseAgent(route, url.startsWith("https:"));
      const reply = await post(outgoing, agent, timeoutMs, signal);
      return "status" in reply ? judgeReply(kind, reply, now()) : reply;
    },
  };
}

function readyKey(state: KeyState | null): Secret | null {
  return state?.state === "ready" ? state.key : null;
}

function findBlocked(state: KeyState | null): Blocked | null {
  if (state === null || state.state === "ready") return null;
  if (state.state === "unavailable")
    return { state: "unavailable", problem: state.problem, next: state.next };
  const { what, from, to } = state;
  const problem = `${what} waits for your confirmation: ${from} → ${to}`;
  return { state: "held", problem, next: advice.trust("notify") };
}

function unusable(problem: Problem | null): Blocked | null {
  return problem === null ? null : { state: "unavailable", ...problem };
}
