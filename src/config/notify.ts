import type { CertificateAuthority, KeySource, Listen, Named } from "./schema.ts";
import { quoted, type Reader, type Section } from "./section.ts";
import { readAuthority, readCommandLine, readKeySource } from "./sources.ts";
import { flag, listen, oneOf, plainText, proxyUrl } from "./values.ts";

/* Where keybearer reports what happens: `notify:` and `metrics:`. */

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
  /** Signs the messages: generic, feishu and dingtalk. Default none. */
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

export const DEFAULT_NOTIFY: Notify = Object.freeze({
  desktop: true,
  command: null,
  webhooks: Object.freeze(Object.create(null)),
  events: Object.freeze({}),
  quiet: null,
});

const quietHours: Reader<QuietHours> = (text) => {
  const match = /^([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]):([0-5]\d)$/.exec(text.trim());
  const [from, to] = match === null ? [0, 0] : [minutes(match[1], match[2]), minutes(match[3], match[4])];
  if (from !== to) return { value: Object.freeze({ from, to }) };
  return { problem: `${quoted(text)} are no quiet hours`, next: '"22:00-07:00"' };
};

function minutes(hours = "0", rest = "0"): number {
  return Number(hours) * 60 + Number(rest);
}

export function readNotify(section: Section | null, home: string): Notify {
  if (section === null) return DEFAULT_NOTIFY;
  const desktop = section.scalar("desktop", flag, DEFAULT_NOTIFY.desktop);
  const command = section.entries().has("command") ? readCommandLine(section, home) : null;
  const webhooks = section.named("webhooks", (webhook, name) => readWebhook(webhook, name, home));
  for (const name of ["desktop", "command"]) {
    if (webhooks[name] !== undefined)
      section.report.error(
        section.at,
        section.pathOf("webhooks"),
        `no webhook can be called ${name}`,
        "mine",
      );
  }
  const channels = ["desktop", ...(command === null ? [] : ["command"]), ...Object.keys(webhooks)];
  const events = readEvents(section.section("events"), channels);
  const quiet = section.scalar("quiet", quietHours, null);
  section.finish();
  return Object.freeze({ desktop, command, webhooks, events, quiet });
}

/** kind: false, one channel, or a list of channels. */
function readEvents(section: Section | null, channels: readonly string[]): Notify["events"] {
  if (section === null) return DEFAULT_NOTIFY.events;
  const channel: Reader<string> = (text) => {
    if (text === "false" || channels.includes(text)) return { value: text };
    return { problem: `there is no channel ${quoted(text)}`, next: `false, or of ${channels.join(", ")}` };
  };
  const events: Partial<Record<EventKind, readonly string[]>> = {};
  for (const kind of EVENT_KINDS) {
    const named = section.scalars(kind, channel);
    if (section.entries().has(kind)) events[kind] = Object.freeze(named.filter((name) => name !== "false"));
  }
  section.finish();
  return Object.freeze(events);
}

/** Kinds whose messages can be signed, and those that need to know for whom they are. */
const SIGNED: readonly WebhookKind[] = ["generic", "feishu", "dingtalk"];
const ADDRESSED: readonly WebhookKind[] = ["telegram", "ntfy", "bark"];

const anyLine = (text: string) => (/[\r\n]/.test(text) ? "it contains a line break" : null);

function readWebhook(section: Section, name: string, home: string): Webhook | null {
  const kind = section.scalar("kind", oneOf(...WEBHOOK_KINDS), "generic");
  const url = readKeySource(section, "url", home, anyLine);
  const webhook = {
    name,
    kind,
    secret: readKeySource(section, "secret", home, anyLine),
    to: section.scalar("to", plainText, null),
    proxy: section.scalar("proxy", proxyUrl, null),
    authority: readAuthority(section, home),
  };
  section.finish();
  const { report } = section;
  if (!section.entries().has("url")) {
    const next = "url: keychain:keybearer/slack";
    report.error(section.at, section.path, "the webhook has no url", next);
  }
  if (section.entries().has("secret") && !SIGNED.includes(kind))
    report.error(
      section.offsetOf("secret"),
      section.pathOf("secret"),
      `messages of ${kind} are not signed`,
      "remove it",
    );
  if (!section.entries().has("to") && ADDRESSED.includes(kind))
    report.error(section.at, section.path, `${kind} needs to know for whom the message is`, "to: …");
  if (section.entries().has("to") && !ADDRESSED.includes(kind))
    report.error(
      section.offsetOf("to"),
      section.pathOf("to"),
      `the address of ${kind} says for whom it is`,
      "remove it",
    );
  return url === null ? null : Object.freeze({ ...webhook, url });
}

const DEFAULT_METRICS_LISTEN: Listen = Object.freeze({ host: "localhost", port: 5399 });

const metricsToken: Reader<string> = (text) => {
  const hash = /^sha256:([0-9a-f]{64})$/i.exec(text)?.[1];
  if (hash !== undefined) return { value: hash.toLowerCase() };
  return { problem: "this is not the hash of a token", next: "keybearer metrics token" };
};

/** `metrics: true` stands for the usual address. */
export function readMetrics(top: Section): Metrics | null {
  const entry = top.entries().get("metrics");
  if (entry?.value.kind === "scalar") {
    const isOn = top.scalar("metrics", flag, false);
    return isOn ? Object.freeze({ listen: DEFAULT_METRICS_LISTEN, token: null }) : null;
  }
  const section = top.section("metrics");
  if (section === null) return null;
  const metrics = {
    listen: section.scalar("listen", listen, DEFAULT_METRICS_LISTEN),
    token: section.scalar("token", metricsToken, null),
  };
  section.finish();
  return Object.freeze(metrics);
}
