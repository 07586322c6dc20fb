import { DAY_MS, exactDollars } from "../core/units.ts";
import {
  type Config,
  describeSource,
  type Gateway,
  type Group,
  type KeySource,
  type Limits,
  type Named,
  type QuietHours,
  type Rate,
  type SessionLimits,
  type Tool,
} from "./schema.ts";
import type { KeyState, Snapshot } from "./snapshot.ts";

/** What a reload changed, for the log. Keys appear as fingerprints only. */
export function describeChanges(from: Snapshot, to: Snapshot): string[] {
  return [
    ...topChanges(from.config, to.config),
    ...namedChanges("gateway", from.config.gateways, to.config.gateways, gatewayChanges),
    ...namedChanges("tool", from.config.tools, to.config.tools, (old, tool) => [
      ...toolChanges(old, tool),
      ...keyChanges(from.keyOf(old), to.keyOf(tool)),
    ]),
    ...namedChanges("price", from.config.prices, to.config.prices, (old, price) =>
      differ("price", old, price),
    ),
    ...sharedChanges(from, to),
    ...notifyChanges(from, to),
  ];
}

/** Changed settings that take effect at the next start. */
export function needsRestart(from: Config, to: Config): { path: string; message: string }[] {
  const changed: { path: string; message: string }[] = [];
  if (!same(from.listen, to.listen)) {
    const message = `listen ${address(from.listen)} → ${address(to.listen)} needs a restart`;
    changed.push({ path: "listen", message });
  }
  if (from.usage.sync !== to.usage.sync) {
    const message = `usage.sync ${from.usage.sync} → ${to.usage.sync} needs a restart`;
    changed.push({ path: "usage.sync", message });
  }
  return changed;
}

function topChanges(from: Config, to: Config): string[] {
  return [
    ...differ("listen", address(from.listen), address(to.listen)),
    ...differ("dashboard", from.dashboard, to.dashboard),
    ...differ(
      "metrics",
      from.metrics && address(from.metrics.listen),
      to.metrics && address(to.metrics.listen),
    ),
    ...(from.metrics?.token === to.metrics?.token ? [] : ["the token for metrics changed"]),
    ...differ("drain", `${from.drain / 1000}s`, `${to.drain / 1000}s`),
    ...differ("usage", from.usage, to.usage),
    ...differ("log level", from.log.level, to.log.level),
  ];
}

function namedChanges<T>(
  noun: string,
  from: Named<T>,
  to: Named<T>,
  compare: (old: T, now: T) => string[],
): string[] {
  const lines: string[] = [];
  for (const [name, old] of Object.entries(from)) {
    const now = to[name];
    if (now === undefined) lines.push(`${noun} ${name}: removed`);
    else for (const change of compare(old, now)) lines.push(`${noun} ${name}: ${change}`);
  }
  for (const name of Object.keys(to)) {
    if (from[name] === undefined) lines.push(`${noun} ${name}: added`);
  }
  return lines;
}

function gatewayChanges(from: Gateway, to: Gateway): string[] {
  return [
    ...differ("base_url", from.baseUrl, to.baseUrl),
    ...differ("messages_url", from.messagesUrl, to.messagesUrl),
    ...differ("key_header", from.keyHeader, to.keyHeader),
    ...differ("websockets", from.websockets, to.websockets),
    ...differ("proxy", from.proxy, to.proxy),
    ...differ("ca_file", from.authority?.file ?? null, to.authority?.file ?? null),
    ...differ("timeouts", from.timeouts, to.timeouts),
    // The login may hold a secret, so only the fact is reported.
    ...(same(from.console, to.console) ? [] : ["console changed"]),
    ...namedChanges<Group>("group", from.groups, to.groups, (old, group) => [
      ...differ("multiplier", old.multiplier, group.multiplier),
      ...differ("models", old.models.join(", "), group.models.join(", ")),
      ...(old.enabled === group.enabled ? [] : [group.enabled ? "enabled" : "disabled"]),
    ]),
  ];
}

function toolChanges(from: Tool, to: Tool): string[] {
  return [
    ...(from.enabled === to.enabled ? [] : [to.enabled ? "enabled" : "disabled"]),
    ...differ("gateway", from.gateway, to.gateway),
    ...differ("group", from.group, to.group),
    ...differ("key comes from", describeOrigin(from.key), describeOrigin(to.key)),
    ...(same(from.tokens, to.tokens) ? [] : [`tokens changed, now ${to.tokens.length}`]),
    ...differ("token_in_url", from.tokenInUrl, to.tokenInUrl),
    ...differ("process", from.process, to.process),
    ...differ("allow_origins", from.allowOrigins.join(", "), to.allowOrigins.join(", ")),
    ...differ("model", from.model, to.model),
    ...limitChanges(from.limits, to.limits),
    ...differ("quota", money(from.quota), money(to.quota)),
    ...differ("expires", day(from.expires), day(to.expires)),
    ...differ("ask_usage", from.askUsage, to.askUsage),
    ...differ("estimate", from.estimate, to.estimate),
    ...differ("keys_elsewhere", from.keysElsewhere, to.keysElsewhere),
    ...differ("watch_only", from.watchOnly, to.watchOnly),
    ...differ("rotate_every", days(from.rotateEvery), days(to.rotateEvery)),
    ...differ("on_leak", from.onLeak, to.onLeak),
    ...differ("shared", from.shared, to.shared),
  ];
}

function sharedChanges(from: Snapshot, to: Snapshot): string[] {
  const old = from.config.shared;
  const now = to.config.shared;
  if (old === null && now === null) return [];
  if (now === null) return ["shared: removed"];
  if (old === null) return [`shared: added, with ${now.store.url}`];
  const changes = [
    ...differ("store", old.store.url, now.store.url),
    ...differ("username", old.store.username, now.store.username),
    ...differ("password comes from", secretOrigin(old.store.password), secretOrigin(now.store.password)),
    ...secretChanges("password", from.sharedPassword(), to.sharedPassword()),
    ...differ("secret comes from", secretOrigin(old.secret), secretOrigin(now.secret)),
    ...secretChanges("secret", from.sharedSecret(), to.sharedSecret()),
    ...differ("ca_file", old.store.authority?.file ?? null, now.store.authority?.file ?? null),
    ...differ("prefix", old.store.prefix, now.store.prefix),
    ...differ("machine", old.machine, now.machine),
    ...differ("timezone", old.timezone, now.timezone),
    ...differ("when_unreachable", old.whenUnreachable, now.whenUnreachable),
  ];
  return changes.map((change) => `shared: ${change}`);
}

/** Neither an address nor who gets the messages: both may be secrets. */
function notifyChanges(from: Snapshot, to: Snapshot): string[] {
  const old = from.config.notify;
  const now = to.config.notify;
  const changes = [
    ...differ("desktop", old.desktop, now.desktop),
    ...(same(old.command, now.command) ? [] : [describePresence("command", old.command, now.command)]),
    ...secretChanges("command", from.notifyCommand(), to.notifyCommand()),
    ...differ("events", old.events, now.events),
    ...differ("quiet", quietText(old.quiet), quietText(now.quiet)),
    ...namedChanges("webhook", old.webhooks, now.webhooks, (before, after) => [
      ...differ("kind", before.kind, after.kind),
      ...differ("url comes from", secretOrigin(before.url), secretOrigin(after.url)),
      ...secretChanges("url", from.webhookSecret(before, "url"), to.webhookSecret(after, "url")),
      ...differ("secret comes from", secretOrigin(before.secret), secretOrigin(after.secret)),
      ...secretChanges("secret", from.webhookSecret(before, "secret"), to.webhookSecret(after, "secret")),
      ...(before.to === after.to ? [] : [describePresence("to", before.to, after.to)]),
      ...differ("proxy", before.proxy, after.proxy),
      ...differ("ca_file", before.authority?.file ?? null, after.authority?.file ?? null),
    ]),
  ];
  return changes.map((change) => `notify: ${change}`);
}

function describePresence(name: string, from: unknown, to: unknown): string {
  if (from === null) return `${name} added`;
  return to === null ? `${name} removed` : `${name} changed`;
}

function quietText(quiet: QuietHours | null): string | null {
  const clock = (minutes: number) =>
    `${String(Math.floor(minutes / 60)).padStart(2, "0")}:${String(minutes % 60).padStart(2, "0")}`;
  return quiet === null ? null : `${clock(quiet.from)}-${clock(quiet.to)}`;
}

function secretOrigin(source: KeySource | null): string | null {
  return source === null ? null : describeOrigin(source);
}

/** Without fingerprints: the last characters of a short password are much of it. */
function secretChanges(name: string, from: KeyState | null, to: KeyState | null): string[] {
  if (from === null || to === null) return [];
  if (from.state === "ready" && to.state === "ready")
    return from.key.equals(to.key) ? [] : [`${name} changed`];
  const before = from.state === "ready" ? "ready" : describeKey(from);
  const after = to.state === "ready" ? "ready" : describeKey(to);
  return before === after ? [] : [`${name} ${before} → ${after}`];
}

/** keyChanges reports the fingerprint of a key that is in the file. */
function describeOrigin(key: KeySource): string {
  return key.kind === "literal" ? "config.yaml itself" : describeSource(key);
}

function limitChanges(from: Limits, to: Limits): string[] {
  const plain = (rates: readonly Rate[]) => rates.map((rate) => `${rate.max}/${rate.per}`).join(", ") || null;
  const spend = (rates: readonly Rate[]) =>
    rates.map((rate) => `${money(rate.max)}/${rate.per}`).join(", ") || null;
  return [
    ...differ("requests", plain(from.requests), plain(to.requests)),
    ...differ("tokens", plain(from.tokens), plain(to.tokens)),
    ...differ("spend", spend(from.spend), spend(to.spend)),
    ...differ("concurrent", from.concurrent, to.concurrent),
    ...differ("wait", from.wait, to.wait),
    ...differ("session", sessionText(from.session), sessionText(to.session)),
  ];
}

function sessionText(limits: SessionLimits | null): string | null {
  if (limits === null) return null;
  const { requests, tokens, spend } = limits;
  const parts = { requests, tokens, spend: spend === null ? null : money(spend) };
  return Object.entries(parts)
    .flatMap(([name, max]) => (max === null ? [] : [`${name} ${max}`]))
    .join(", ");
}

function keyChanges(from: KeyState, to: KeyState): string[] {
  if (from.state === "ready" && to.state === "ready" && from.key.equals(to.key)) return [];
  const before = describeKey(from);
  const after = describeKey(to);
  return before === after && from.state !== "ready" ? [] : [`key ${before} → ${after}`];
}

function describeKey(key: KeyState): string {
  switch (key.state) {
    case "ready":
      return key.key.fingerprint;
    case "unavailable":
      return "unavailable";
    case "needs-trust":
      return `held (${key.what}: ${key.from} → ${key.to})`;
  }
}

function differ(name: string, from: unknown, to: unknown): string[] {
  return same(from, to) ? [] : [`${name} ${show(from)} → ${show(to)}`];
}

/** For plain data. A Secret inside compares by its fingerprint, so keys are compared separately. */
function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function show(value: unknown): string {
  if (value === null || value === "") return "none";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function money(microdollars: number | null): string | null {
  return microdollars === null ? null : exactDollars(microdollars);
}

function day(time: number | null): string | null {
  return time === null ? null : new Date(time).toISOString();
}

function days(milliseconds: number | null): string | null {
  return milliseconds === null ? null : `${milliseconds / DAY_MS}d`;
}

function address(listen: Config["listen"]): string {
  return `${listen.host === "::1" ? "[::1]" : listen.host}:${listen.port}`;
}
