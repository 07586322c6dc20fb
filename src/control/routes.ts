import type { ServerResponse } from "node:http";
import {
  consoleSecretName,
  consoleSources,
  type KeyState,
  NOTIFY_COMMAND,
  SHARED_PASSWORD,
  SHARED_SECRET,
  type Snapshot,
  webhookSecretName,
  webhookSources,
} from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import { type Problem, withNext } from "../core/display.ts";
import { HttpError } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { localTime } from "../core/units.ts";
import type { Prober } from "../doctor/tool-probes.ts";
import type { ListedEvent } from "../events/event.ts";
import type { Events } from "../events/events.ts";
import type { Keyring } from "../keys/keyring.ts";
import type { KeyPlace } from "../keys/stored-keys.ts";
import { isKeyAction, type KeyAction, PAST } from "../lifecycle/key-action.ts";
import type { CreateOptions, KeyLifecycle, RotateOptions } from "../lifecycle/lifecycle.ts";
import { Refused } from "../lifecycle/refused.ts";
import { explainError } from "../lifecycle/steps.ts";
import type { Kind } from "../limits/counters.ts";
import { amountInWords } from "../limits/format.ts";
import { ConsoleError, type KeySettings } from "../mirror/consoles/console.ts";
import type { LoginRequest } from "../mirror/login.ts";
import type { Mirror } from "../mirror/mirror.ts";
import type { Notifier } from "../notify/notifier.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import { hasOnly, isKind, isPositive, isSession, isShownAlarm, isText, isTextOrNull } from "./body.ts";
import type { Browsers } from "./browsers.ts";
import type { Confirmations } from "./confirmation.ts";
import type { SessionLimitStatus, SessionStatus } from "./session-status.ts";
import { type ActionLog, indexStatus, type Status } from "./status.ts";
import type { Tail } from "./tail.ts";
import type { LimitStatus } from "./tool-status.ts";

/** What the daemon offers to its own command line. */
export interface Controls {
  readonly log: Logger;
  status(): Promise<Status>;
  readonly reload: { readonly snapshot: Snapshot; takeKeys(): Promise<void> };
  readonly keyring: Pick<Keyring, "grant" | "grantAll" | "held">;
  /** The configuration of the system service. Throws an HttpError elsewhere: there the command line reads and edits the file. */
  readonly layered: LayeredConfig;
  /** A command stored a key for this tool, which the next save of config.yaml names. */
  claim(tool: string, request: ClaimRequest): Promise<void>;
  /** Gives one extra allowance. null: there is no such tool. */
  allow(tool: string, request: AllowanceRequest, peer: string): AllowanceAnswer | null;
  /** The sessions that run, are limited or were stopped. */
  sessions(): SessionStatus[];
  /** Stops a session of a tool and cuts its requests in flight, or allows it again. null: there is no such tool. */
  stopSession(tool: string, request: SessionStopRequest, peer: string): SessionStopAnswer | null;
  /** Gives a session more than its limit. null: there is no such tool. */
  liftSession(tool: string, request: SessionLiftRequest, peer: string): SessionLiftAnswer | null;
  /** What a lost machine holds of the tool's shared limits can be granted again. null: there is no such tool. */
  release(tool: string, machine: string, peer: string): Promise<ReleaseAnswer | null>;
  /** The next save of config.yaml renames the tool, and its counters move with it. null: there is no such tool. */
  expectRename(tool: string, to: string, peer: string): Record<string, never> | null;
  /** Cuts a tool's requests in flight. null: neither a tool nor a request in flight has this name. */
  cut(tool: string, peer: string): CutAnswer | null;
  /** Opens the dashboard's port and issues a code for it. Throws if it cannot. */
  open(peer: string): Promise<OpenAnswer>;
  readonly usage: Pick<UsageLog, "catchUp" | "rebuild">;
  /** Sends a copy of the usage index, for owners of the system service. */
  copyIndex(response: ServerResponse): Promise<void>;
  readonly actions: ActionLog;
  readonly tail: Tail;
  readonly mirror: Pick<
    Mirror,
    | "report"
    | "keys"
    | "refreshKeys"
    | "listKeys"
    | "diff"
    | "days"
    | "compared"
    | "sync"
    | "login"
    | "acknowledge"
    | "status"
    | "factsOf"
    | "canChangeKeys"
  >;
  readonly prober: Pick<Prober, "probes" | "models">;
  readonly events: Pick<Events, "newest" | "mute" | "mutes">;
  /** Writes each event from now on as a JSON line, until the response is closed. */
  followEvents(response: ServerResponse): void;
  readonly lifecycle: Pick<
    KeyLifecycle,
    "rotatable" | "rotate" | "create" | "delete" | "changeable" | "setEnabled" | "changeUnheld"
  >;
  readonly notifier: Pick<Notifier, "status" | "test">;
  readonly confirmations: Confirmations;
  readonly browsers: Browsers;
}

export interface LayeredConfig {
  read(): Promise<ConfigAnswer>;
  /** Saves what an owner may change. Throws an HttpError. */
  save(request: ConfigRequest, owner: string | null): Promise<void>;
  /** Root has taken what was applied to these tools into config.yaml. `before`: the digest of that text. Throws an HttpError. */
  forget(request: ForgetRequest): Promise<void>;
}

interface ForgetRequest {
  readonly before: string;
  readonly tools: readonly string[];
}

export interface HeldTool {
  readonly tool: string;
  readonly what: string;
  readonly from: string;
  readonly to: string;
}

interface ClaimRequest {
  readonly place: KeyPlace;
  /** Where the key may go. */
  readonly origins: readonly string[];
}

export interface TrustAnswer {
  readonly granted: readonly string[];
  readonly problems: readonly string[];
}

export interface AllowanceRequest {
  readonly kind: Kind;
  /** Requests, tokens or micro-dollars; 0 takes back everything that was given. */
  readonly amount: number;
  /** It counts until this time; null: in the current windows. */
  readonly until: number | null;
}

export interface AllowanceAnswer {
  readonly tool: string;
  /** All limits of the tool as they are now. */
  readonly levels: readonly LimitStatus[];
  /** Why nothing was given; null: it was. */
  readonly problem: string | null;
}

export interface ReleaseAnswer {
  /** All limits of the tool as they are now. */
  readonly levels: readonly LimitStatus[];
  /** Why nothing was released; null: it was. */
  readonly problem: string | null;
}

export interface SessionStopRequest {
  readonly session: string;
  /** false: it is allowed again. */
  readonly stopped: boolean;
}

export interface SessionStopAnswer extends CutAnswer {
  /** Why nothing changed; null: it did. */
  readonly problem: string | null;
}

export interface SessionLiftRequest {
  readonly session: string;
  readonly kind: Kind;
  /** Requests, tokens or micro-dollars; 0 takes back everything that was given. */
  readonly amount: number;
}

export interface SessionLiftAnswer {
  /** The limits of the session as they are now. */
  readonly limits: readonly SessionLimitStatus[];
  /** Why nothing was given; null: it was. */
  readonly problem: string | null;
}

export interface EventsAnswer {
  /** The newest last. */
  readonly events: readonly ListedEvent[];
  readonly mutes: readonly Muted[];
}

export interface Muted {
  readonly subject: string;
  readonly until: number;
}

export interface CutAnswer {
  readonly cut: number;
}

export interface OpenAnswer {
  /** http://localhost:5398/ */
  readonly url: string;
  /** Valid once; appended to the address: #code=… */
  readonly code: string;
  /** Whole seconds. */
  readonly expires_in: number;
}

interface RouteInput {
  /** The last part of the path; empty where the route has none. */
  readonly name: string;
  readonly body: unknown;
  /** The calling process, as it describes itself. */
  readonly peer: string;
  readonly res: ServerResponse;
  /** The owner of the system service who asks; null: the user who may do everything. */
  readonly owner: string | null;
}

/** config.yaml as it is in force. It holds no secret. */
export interface ConfigAnswer {
  readonly text: string;
  /** The settings that the system service changed: their paths. */
  readonly overridden: readonly string[];
}

export interface ConfigRequest {
  /** The SHA-256 of the text that it replaces. */
  readonly before: string;
  readonly text: string;
}

/** There is nothing of that name. */
export const NOT_FOUND: unique symbol = Symbol("not found");
/** The route writes the response itself. */
export const HANDLED: unique symbol = Symbol("handled");

type Route = (controls: Controls, input: RouteInput) => unknown;

export const ROUTES: Readonly<Record<string, Route>> = {
  "GET /status": (controls) => controls.status(),
  "GET /config": ({ layered }) => layered.read(),
  "POST /config": async ({ layered, log }, { body, owner, peer }) => {
    if (!hasOnly(body, ["before", "text"]) || !isText(body.before) || !isText(body.text))
      throw new HttpError(400, "send before and text (texts)");
    await layered.save({ before: body.before, text: body.text }, owner);
    log.info({ peer }, "an owner changed the configuration");
    return {};
  },
  "POST /forget": async ({ layered }, { body }) => {
    if (!isForgetRequest(body)) throw new HttpError(400, "send before (a text) and tools (a list of texts)");
    await layered.forget(body);
    return {};
  },
  "GET /held/:name": ({ reload }, { name }) => heldTools(reload.snapshot, name) ?? NOT_FOUND,
  "GET /held": ({ keyring }) => keyring.held().map(({ name, ...change }) => ({ tool: name, ...change })),
  "POST /trust": (controls, { body, peer }) => {
    if (!isHeldTools(body)) throw new HttpError(400, HELD_BODY);
    return trustAll(controls, body, peer);
  },
  "POST /trust/:name": (controls, { name, body, peer }) => {
    if (!isHeldTools(body)) throw new HttpError(400, HELD_BODY);
    return trustHeld(controls, name, body, peer);
  },
  "POST /claim/:name": async (controls, { name, body, peer }) => {
    if (!isClaimRequest(body)) throw new HttpError(400, CLAIM_BODY);
    await controls.claim(name, body);
    controls.log.warn({ tool: name, peer }, `a key was stored for tool ${name}`);
    return {};
  },
  "POST /lift/:name": (controls, { name, body, peer }) => {
    if (!isAllowanceRequest(body)) throw new HttpError(400, ALLOWANCE_BODY);
    const answer = controls.allow(name, body, peer);
    if (answer === null) return NOT_FOUND;
    if (answer.problem === null) {
      controls.actions.add(
        body.amount === 0
          ? `took back the extra allowances of ${body.kind} from tool ${name}`
          : `gave tool ${name} an extra allowance of ${amountInWords(body.kind, body.amount)}`,
      );
    }
    return answer;
  },
  "GET /confirmations": ({ confirmations }) => confirmations.waiting(),
  "POST /confirm/:name": ({ confirmations, log }, { name, body, peer }) => {
    requireEmpty(body);
    log.info({ peer }, "issued digits for an action of the dashboard");
    return confirmations.confirm(name) ?? NOT_FOUND;
  },
  "GET /confirmed/:name": ({ confirmations }, { name, res }) => {
    // A token would be printed nowhere.
    res.once("close", () => confirmations.leave(name));
    return confirmations.ended(name) ?? NOT_FOUND;
  },
  "GET /browsers": ({ browsers }) => browsers.list(),
  "POST /revokebrowser/:name": async ({ browsers }, { name, body }) => {
    requireEmpty(body);
    return (await browsers.revoke(name)) ?? NOT_FOUND;
  },
  "GET /sessions": (controls) => controls.sessions(),
  "POST /stopsession/:name": (controls, { name, body, peer }) => {
    if (!isSessionStop(body)) throw new HttpError(400, SESSION_STOP_BODY);
    const answer = controls.stopSession(name, body, peer);
    if (answer === null) return NOT_FOUND;
    const did = body.stopped ? "stopped" : "allowed";
    if (answer.problem === null) controls.actions.add(`${did} session ${body.session} of tool ${name}`);
    return answer;
  },
  "POST /liftsession/:name": (controls, { name, body, peer }) => {
    if (!isSessionLift(body)) throw new HttpError(400, SESSION_LIFT_BODY);
    const answer = controls.liftSession(name, body, peer);
    if (answer === null) return NOT_FOUND;
    if (answer.problem === null) {
      controls.actions.add(
        body.amount === 0
          ? `took back the extra allowances of ${body.kind} from session ${body.session} of tool ${name}`
          : `gave session ${body.session} of tool ${name} an extra allowance of ${amountInWords(body.kind, body.amount)}`,
      );
    }
    return answer;
  },
  "POST /release/:name": async (controls, { name, body, peer }) => {
    if (!hasOnly(body, ["machine"]) || !isText(body.machine))
      throw new HttpError(400, "send the name of the lost machine: machine (a text)");
    const answer = await controls.release(name, body.machine, peer);
    if (answer === null) return NOT_FOUND;
    if (answer.problem === null)
      controls.actions.add(`released what machine ${body.machine} held of the limits of tool ${name}`);
    return answer;
  },
  "POST /rename/:name": (controls, { name, body, peer }) => {
    if (!hasOnly(body, ["to"]) || !isText(body.to))
      throw new HttpError(400, "send the new name: to (a text)");
    return controls.expectRename(name, body.to, peer) ?? NOT_FOUND;
  },
  "POST /cut/:name": (controls, { name, body, peer }) => {
    requireEmpty(body);
    // The tool may have been removed a moment ago: then nothing of it runs, as the caller asked.
    return controls.cut(name, peer) ?? { cut: 0 };
  },
  "POST /open": (controls, { body, peer }) => {
    requireEmpty(body);
    return controls.open(peer);
  },
  "POST /stop": ({ log }, { body, peer }) => {
    requireEmpty(body);
    log.info({ peer }, "stop requested");
    // The same path as Ctrl-C: requests in flight finish first.
    process.kill(process.pid, "SIGTERM");
    return { pid: process.pid };
  },
  "POST /index": async ({ usage }, { body }) => {
    requireEmpty(body);
    return indexStatus(await usage.catchUp());
  },
  "POST /rebuild": async ({ usage }, { body }) => {
    requireEmpty(body);
    return indexStatus(await usage.rebuild());
  },
  "GET /usageindex": async ({ copyIndex }, { res }) => {
    await copyIndex(res);
    return HANDLED;
  },
  "GET /tail": ({ tail }, { res }) => {
    tail.follow(res);
    return HANDLED;
  },
  "GET /events": (controls) => newestEvents(controls, DEFAULT_EVENTS),
  "GET /events/:name": (controls, { name, res }) => {
    if (name === "follow") {
      controls.followEvents(res);
      return HANDLED;
    }
    if (!/^\d{1,5}$/.test(name)) throw new HttpError(400, "say how many: a number, or follow");
    return newestEvents(controls, Number(name));
  },
  "POST /mute": ({ events, actions, log }, { body, peer }) => {
    if (!isMuteRequest(body)) throw new HttpError(400, MUTE_BODY);
    if (body.until !== null && events.mutes().length >= MAX_MUTES)
      throw new HttpError(409, `${MAX_MUTES} subjects are muted already`);
    const { subject, until } = events.mute(body.subject, body.until);
    const what = until === null ? "sends" : "mutes";
    log.warn({ subject, until, peer }, `${what} events of ${subject}`);
    actions.add(
      until === null ? `ended the mute of ${subject}` : `muted ${subject} until ${localTime(until)}`,
    );
    return { mutes: events.mutes() };
  },
  "GET /models": ({ prober }) => prober.models(null),
  "GET /models/:name": async ({ prober }, { name }) => (await prober.models(name)) ?? NOT_FOUND,
  "GET /probes": ({ prober }) => prober.probes(),
  "GET /mirror": ({ mirror }) => mirror.report(),
  "GET /keys": ({ mirror }) => mirror.keys(),
  "POST /refreshkeys": ({ mirror }, { body }) => {
    requireEmpty(body);
    return mirror.refreshKeys();
  },
  "POST /rotation/:name": (controls, { name, body }) => {
    const { lifecycle } = controls;
    const options = rotateOptions(body);
    return changed(findGateway(controls, name), () => lifecycle.rotatable(name, options));
  },
  "POST /rotate/:name": (controls, { name, body }) => {
    const { lifecycle, actions } = controls;
    const options = rotateOptions(body);
    return changed(findGateway(controls, name), async () => {
      const change = await lifecycle.rotate(name, { ...options, reason: "asked" });
      actions.add(`rotated the key of ${name}`);
      return change;
    });
  },
  "POST /createkey/:name": (controls, { name, body }) => {
    const { lifecycle, actions } = controls;
    const options = createOptions(body);
    return changed(findGateway(controls, name), async () => {
      const change = await lifecycle.create(name, options);
      actions.add(`created a key for ${name}`);
      return change;
    });
  },
  "POST /deletekey/:name": (controls, { name, body }) => {
    const { lifecycle, actions } = controls;
    requireEmpty(body);
    return changed(findGateway(controls, name), async () => {
      const change = await lifecycle.delete(name);
      actions.add(`deleted the key of ${name} at the console`);
      return change;
    });
  },
  "POST /consolekey/:name": (controls, { name, body }) => {
    if (!hasOnly(body, ["action"]) || !isKeyAction(body.action)) throw new HttpError(400, ACTION_BODY);
    const { action } = body;
    return changed(findGateway(controls, name), () => controls.lifecycle.changeable(name, action));
  },
  "POST /enablekey/:name": (controls, { name, body }) => {
    const { lifecycle, actions } = controls;
    if (!hasOnly(body, ["enabled"]) || typeof body.enabled !== "boolean")
      throw new HttpError(400, "send enabled (true or false)");
    const { enabled } = body;
    return changed(findGateway(controls, name), async () => {
      const key = await lifecycle.setEnabled(name, enabled);
      actions.add(`${enabled ? "enabled" : "disabled"} the key of ${name} at the console`);
      return key;
    });
  },
  "POST /changekey": ({ lifecycle, mirror, actions }, { body }) => {
    const { gateway, ref, action } = keyAction(body);
    return changed(gateway, async () => {
      const key = (await mirror.listKeys(gateway)).find((one) => one.ref === ref);
      if (key === undefined) throw new Refused("the console does not list this key any more", advice.keys());
      await lifecycle.changeUnheld(key, action);
      actions.add(`${PAST[action]} key ${key.name} at the console of ${gateway}`);
      return key;
    });
  },
  "GET /mirrordiff": ({ mirror }) => mirror.diff(),
  "POST /compared": ({ mirror }, { body }) => {
    if (!hasOnly(body, ["what"]) || !isText(body.what))
      throw new HttpError(400, "send which one: what (a row, a request id or a record's id)");
    return mirror.compared(body.what);
  },
  "POST /sync/:name": async ({ mirror }, { name, body }) => {
    requireEmpty(body);
    return (await mirror.sync(name)) ?? NOT_FOUND;
  },
  "POST /login/:name": async ({ mirror }, { name, body }) => {
    const { account = null, ...credentials } = (body ?? {}) as { readonly account?: unknown };
    const request = loginRequest(credentials);
    // The message does not repeat what was sent: it is a secret.
    if (request === null || !isTextOrNull(account)) throw new HttpError(400, LOGIN_BODY);
    return (await mirror.login(name, account, request)) ?? NOT_FOUND;
  },
  "POST /notify/test": async ({ notifier, log }, { body, peer }) => {
    if (!hasOnly(body, ["channel"]) || !isTextOrNull(body.channel))
      throw new HttpError(400, "send which channel: channel (its name, or null for all)");
    const { channel } = body;
    // A name of no channel is not logged: somebody may have pasted an address.
    if (channel !== null && notifier.status().channels.every(({ name }) => name !== channel))
      throw new HttpError(404, `there is no channel ${channel}`);
    log.info({ peer, channel }, "notify: test requested");
    return (await notifier.test(channel)) ?? NOT_FOUND;
  },
  "POST /ack": async ({ mirror, actions }, { body, peer }) => {
    if (!isShownAlarm(body)) throw new HttpError(400, ACK_BODY);
    const acknowledged = await mirror.acknowledge(body, peer);
    if (acknowledged !== null && acknowledged > 0)
      actions.add(`acknowledged ${acknowledged} foreign ${acknowledged === 1 ? "row" : "rows"}`);
    return { acknowledged };
  },
};

/**
 * Has a route do what a command asks it for. Only for routes that answer with a value.
 * @returns NOT_FOUND: there is nothing of that name
 */
export function callRoute(
  controls: Controls,
  route: string,
  input: Pick<RouteInput, "name" | "body" | "peer">,
): unknown {
  return ROUTES[route]?.(controls, input as RouteInput);
}

/** A change of a key, or why there is none. */
export type Changed<Value> =
  | { readonly ok: true; readonly value: Value }
  | ({ readonly ok: false } & Problem);

const DEFAULT_EVENTS = 100;
const MAX_MUTES = 200;

export function newestEvents({ events }: Controls, count: number): EventsAnswer {
  return { events: count === 0 ? [] : events.newest(count), mutes: events.mutes() };
}

function findGateway({ reload }: Controls, tool: string): string {
  return reload.snapshot.config.tools[tool]?.gateway ?? "";
}

async function changed<Value>(gateway: string, work: () => Promise<Value>): Promise<Changed<Value>> {
  try {
    return { ok: true, value: await work() };
  } catch (error) {
    if (error instanceof Refused || error instanceof ConsoleError)
      return { ok: false, ...explainError(error, gateway) };
    throw error;
  }
}

/**
 * The keys and console secrets of a tool or gateway, the password and secret of the store for `shared`, or the program and
 * the secrets of webhooks for `notify`, that wait for `keybearer trust`. null: there is no such name.
 */
export function heldTools(snapshot: Snapshot, name: string): HeldTool[] | null {
  const { tools, gateways } = snapshot.config;
  const gateway = gateways[name];
  const own = Object.values(tools).filter((tool) => tool.name === name || tool.gateway === name);
  const isStore = name === "shared" && snapshot.config.shared !== null;
  const isNotify = name === "notify";
  if (own.length === 0 && gateway === undefined && !isStore && !isNotify) return null;
  const held: HeldTool[] = [];
  const add = (tool: string, key: KeyState | null) => {
    if (key?.state === "needs-trust") held.push({ tool, what: key.what, from: key.from, to: key.to });
  };
  for (const tool of own) add(tool.name, snapshot.keyOf(tool));
  if (gateway !== undefined) {
    for (const { account, secret } of consoleSources(gateway))
      add(consoleSecretName(name, account, secret), snapshot.consoleSecret(gateway, account, secret));
  }
  if (isStore) {
    add(SHARED_PASSWORD, snapshot.sharedPassword());
    add(SHARED_SECRET, snapshot.sharedSecret());
  }
  if (isNotify) {
    add(NOTIFY_COMMAND, snapshot.notifyCommand());
    for (const webhook of Object.values(snapshot.config.notify.webhooks))
      for (const { secret } of webhookSources(webhook))
        add(webhookSecretName(webhook.name, secret), snapshot.webhookSecret(webhook, secret));
  }
  return held;
}

/** Releases held keys, but only as they were shown to the person who said yes. */
export async function trustHeld(
  { reload, keyring, actions, log }: Controls,
  name: string,
  shown: readonly HeldTool[],
  peer: string,
): Promise<TrustAnswer> {
  const granted: string[] = [];
  const problems: string[] = [];
  for (const { tool } of heldTools(reload.snapshot, name) ?? []) {
    const seen = shown.find((each) => each.tool === tool);
    if (seen === undefined) continue;
    const answer = await keyring.grant(tool, seen);
    await reload.takeKeys();
    if (!answer.ok) {
      problems.push(withNext(answer));
      continue;
    }
    log.warn({ tool, peer }, `trusted: ${answer.granted}`);
    granted.push(`${tool}: ${answer.granted}`);
    actions.add(`trusted ${tool}: ${answer.granted}`);
    if (answer.problem !== null) problems.push(answer.problem);
    if (answer.state.state === "needs-trust")
      problems.push(`${tool} needs another confirmation → ${advice.trust(name)}`);
  }
  return { granted, problems };
}

/** The same for everything that is held, which also ends the loss of the list of trusted addresses. */
async function trustAll(
  { reload, keyring, actions, log }: Controls,
  shown: readonly HeldTool[],
  peer: string,
): Promise<TrustAnswer> {
  const answer = await keyring.grantAll(
    shown.map(({ tool, what, from, to }) => ({ name: tool, what, from, to })),
  );
  if (!answer.ok) throw new HttpError(409, withNext(answer));
  await reload.takeKeys();
  const granted = shown.map(({ tool, what, from, to }) => `${tool}: ${what}: ${from} → ${to}`);
  for (const text of granted) {
    log.warn({ peer }, `trusted: ${text}`);
    actions.add(`trusted ${text}`);
  }
  const problems = answer.problem === null ? [] : [answer.problem];
  for (const { name } of keyring.held())
    problems.push(`${name} needs another confirmation → ${advice.trustAll()}`);
  return { granted, problems };
}

// Request bodies. A misspelled field must not pass for one that was left out, so the fields must match exactly.

const HELD_BODY = "send what was shown: a list of tool, what, from and to";
const CLAIM_BODY =
  "send place (kind and path of a file, or kind, service and account in the keychain) and origins (a list of addresses)";
const ALLOWANCE_BODY =
  "send what to lift: kind (requests, tokens or spend), amount (a whole number; 0 takes back) and until (milliseconds, or null)";
const SESSION_STOP_BODY = "send session (its id) and stopped (true or false)";
const SESSION_LIFT_BODY =
  "send session (its id), kind (requests, tokens or spend) and amount (a whole number; 0 takes back)";
const LOGIN_BODY =
  "send how to log in: email and password, or code, or refresh_token, or access_token and user (a text, or null); account where there are several";
const ACK_BODY =
  "send what is acknowledged: gateway and key (each a text, or null for all), certain (true, false, or null for both), last_at (milliseconds) and count (each a number, or null)";

const MUTE_BODY = "send subject (a text) and until (milliseconds, or null to end it)";
const ROTATE_BODY =
  "send store (keychain, file or null) and force (true or false); renew (true or false) if a person agreed to a new expiry or quota";
const CREATE_BODY =
  "send account and group (each a text, or null), quota (micro-dollars, or null), windows (a list of window and most), expires_at (milliseconds, or null) and models (a list)";
const ACTION_BODY = "send action (disable, enable or delete)";
const CHANGE_BODY = "send gateway and ref (each a text) and action (disable, enable or delete)";

function rotateOptions(body: unknown): Omit<RotateOptions, "reason"> {
  const isComplete = hasOnly(body, ["store", "force"]) || hasOnly(body, ["store", "force", "renew"]);
  if (!isComplete) throw new HttpError(400, ROTATE_BODY);
  const { store, force, renew = false } = body;
  const isStore = store === null || store === "keychain" || store === "file";
  if (!isStore || typeof force !== "boolean" || typeof renew !== "boolean")
    throw new HttpError(400, ROTATE_BODY);
  return { store, force, renew };
}

function createOptions(body: unknown): CreateOptions {
  if (!hasOnly(body, ["account", "group", "quota", "windows", "expires_at", "models"]))
    throw new HttpError(400, CREATE_BODY);
  const { account, group, quota, windows, expires_at, models } = body;
  const isValid =
    isTextOrNull(account) && isTextOrNull(group) && isKeyWindows(windows) && isModelNames(models);
  if (!isValid || !(quota === null || isPositive(quota)) || !(expires_at === null || isPositive(expires_at)))
    throw new HttpError(400, CREATE_BODY);
  return { account, settings: { group, quota, windows, expires_at, models } };
}

function isModelNames(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every(isText);
}

function isKeyWindows(value: unknown): value is KeySettings["windows"] {
  return (
    Array.isArray(value) &&
    value.every((item) => hasOnly(item, ["window", "most"]) && isText(item.window) && isPositive(item.most))
  );
}

function keyAction(body: unknown): { gateway: string; ref: string; action: KeyAction } {
  if (!hasOnly(body, ["gateway", "ref", "action"]) || !isText(body.gateway) || !isText(body.ref))
    throw new HttpError(400, CHANGE_BODY);
  const { gateway, ref, action } = body;
  if (!isKeyAction(action)) throw new HttpError(400, CHANGE_BODY);
  return { gateway, ref, action };
}

function requireEmpty(body: unknown): void {
  if (!hasOnly(body, [])) throw new HttpError(400, "this takes no settings: send {}");
}

function isHeldTools(body: unknown): body is HeldTool[] {
  const fields = ["tool", "what", "from", "to"];
  return (
    Array.isArray(body) &&
    body.every((item) => item instanceof Object && fields.every((field) => typeof item[field] === "string"))
  );
}

function isForgetRequest(body: unknown): body is ForgetRequest & Record<string, unknown> {
  if (!hasOnly(body, ["before", "tools"])) return false;
  const { before, tools } = body;
  return isText(before) && Array.isArray(tools) && tools.every(isText);
}

function isClaimRequest(body: unknown): body is ClaimRequest & Record<string, unknown> {
  if (!hasOnly(body, ["place", "origins"])) return false;
  const { place, origins } = body;
  const isFile = hasOnly(place, ["kind", "path"]) && place.kind === "file" && isText(place.path);
  const isEntry =
    hasOnly(place, ["kind", "service", "account"]) &&
    place.kind === "keychain" &&
    isText(place.service) &&
    isText(place.account);
  return (isFile || isEntry) && Array.isArray(origins) && origins.every(isText);
}

function isAllowanceRequest(body: unknown): body is AllowanceRequest {
  if (!hasOnly(body, ["kind", "amount", "until"])) return false;
  const { kind, amount, until } = body;
  return isKind(kind) && (amount === 0 || isPositive(amount)) && (until === null || isPositive(until));
}

function isSessionStop(body: unknown): body is SessionStopRequest & Record<string, unknown> {
  return (
    hasOnly(body, ["session", "stopped"]) && isSession(body.session) && typeof body.stopped === "boolean"
  );
}

function isSessionLift(body: unknown): body is SessionLiftRequest & Record<string, unknown> {
  if (!hasOnly(body, ["session", "kind", "amount"])) return false;
  const { session, kind, amount } = body;
  return isSession(session) && isKind(kind) && (amount === 0 || isPositive(amount));
}

export interface MuteRequest {
  readonly subject: string;
  /** null: its events are sent again. */
  readonly until: number | null;
}

function isMuteRequest(body: unknown): body is MuteRequest & Record<string, unknown> {
  if (!hasOnly(body, ["subject", "until"])) return false;
  const { subject, until } = body;
  return isText(subject) && subject.length <= 200 && (until === null || isPositive(until));
}

function loginRequest(body: unknown): LoginRequest | null {
  if (hasOnly(body, ["email", "password"]) && isText(body.email) && isText(body.password))
    return { email: body.email, password: body.password };
  if (hasOnly(body, ["code"]) && isText(body.code)) return { code: body.code };
  if (hasOnly(body, ["refresh_token"]) && isText(body.refresh_token))
    return { refresh_token: body.refresh_token };
  if (hasOnly(body, ["access_token", "user"]) && isText(body.access_token) && isTextOrNull(body.user))
    return { access_token: body.access_token, user: body.user };
  return null;
}
