import type { Problem } from "../core/display.ts";
import {
  EVENT_KINDS,
  type EventKind,
  type Listen,
  type Metrics,
  type Notify,
  type QuietHours,
  WEBHOOK_KINDS,
  type Webhook,
  type WebhookKind,
} from "./schema.ts";
import { type NameCheck, quoted, type Reader, type Section } from "./section.ts";
import { readAuthority, readCommandLine, readKeySource } from "./sources.ts";
import { flag, isLoopback, listen, oneOf, plainText, proxyUrl } from "./values.ts";

/* Where keybearer reports what happens: `notify:` and `metrics:`. */

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

/** @param isName whether a text can be the name of a webhook. Reports why not. */
export function readNotify(section: Section | null, home: string, isName: NameCheck): Notify {
  if (section === null) return DEFAULT_NOTIFY;
  const desktop = section.scalar("desktop", flag, DEFAULT_NOTIFY.desktop);
  const command = section.entry("command") === undefined ? null : readCommandLine(section, home);
  const isOwnName: NameCheck = (name, entry, path, report) => {
    if (!RESERVED.includes(name)) return isName(name, entry, path, report);
    report.error(entry.at, path, `no webhook can be called ${name}`, "choose another name, such as mine");
    return false;
  };
  const written = section.entries().get("webhooks")?.value;
  const names = written?.kind === "dict" ? written.entries.keys() : [];
  const webhooks = section.named("webhooks", (webhook, name) => readWebhook(webhook, name, home), isOwnName);
  const channels = [...(desktop ? ["desktop"] : []), ...(command === null ? [] : ["command"]), ...names];
  const events = readEvents(section.section("events"), channels);
  const quiet = section.scalar("quiet", quietHours, null);
  section.finish();
  return Object.freeze({ desktop, command, webhooks, events, quiet });
}

/** The other channels have these names, and words of `events` and of commands. */
const RESERVED = ["desktop", "command", "true", "false", "all", "none"];

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

/** Kinds that have a secret of their own beside their address, and those that need to know the recipient. */
const WITH_SECRET: readonly WebhookKind[] = ["generic", "feishu", "dingtalk", "ntfy"];
const WITH_RECIPIENT: readonly WebhookKind[] = ["telegram", "ntfy", "bark"];

/** How an address of each kind begins or looks, for messages. */
const ADDRESS_FORMS: Readonly<Record<WebhookKind, string>> = {
  generic: "https://example.com/hook",
  slack: "https://hooks.slack.com/services/…",
  feishu: "https://open.feishu.cn/open-apis/bot/v2/hook/…",
  dingtalk: "https://oapi.dingtalk.com/robot/send?access_token=…",
  wecom: "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…",
  telegram: "https://api.telegram.org/bot…",
  ntfy: "https://ntfy.sh",
  bark: "https://api.day.app",
};

/** What is wrong with a webhook's address; null: nothing. Never with the address, because it is a secret. */
export function addressProblem(kind: WebhookKind, text: string): Problem | null {
  const next = `such as ${ADDRESS_FORMS[kind]}`;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || /[\s\\]|[^\x21-\x7e]/.test(text))
    return { problem: `this is not the address of a webhook of kind ${kind}`, next };
  if (url.protocol === "http:" && !isLoopback(url.hostname))
    return { problem: "http would send the address and the messages unencrypted", next: "write https://" };
  if (url.username !== "" || url.password !== "")
    return { problem: "the address contains a user name or password", next: "remove it" };
  if (url.hash !== "") return { problem: "the address contains a #", next: "cut it off at the #" };
  if (kind === "ntfy" && url.pathname + url.search !== "/")
    return { problem: "the address of ntfy is that of the server, and the topic is in to", next };
  if (kind === "telegram" && !/^\/bot[^/]+(?:\/sendMessage)?$/.test(url.pathname))
    return { problem: "the address of telegram ends with /bot and the bot's token", next };
  return null;
}

/** What is wrong with a webhook's own secret; null: nothing. */
export function webhookSecretProblem(kind: WebhookKind, text: string): Problem | null {
  if (/[^\x21-\x7e]/.test(text))
    return { problem: "the secret contains a space, or a character that is not plain ASCII", next: null };
  if (kind === "generic" && !/^whsec_[A-Za-z0-9+/]{16,}={0,2}$/.test(text))
    return { problem: "the secret of a Standard Webhook begins with whsec_", next: MAKE_WEBHOOK_SECRET };
  return null;
}

const MAKE_WEBHOOK_SECRET = 'make one with: echo "whsec_$(openssl rand -base64 32)"';

function readWebhook(section: Section, name: string, home: string): Webhook | null {
  const kind = section.scalar("kind", oneOf(...WEBHOOK_KINDS), "generic");
  const url = readKeySource(section, "url", home, (text) => addressProblem(kind, text));
  const webhook = {
    name,
    kind,
    secret: readKeySource(section, "secret", home, (text) => webhookSecretProblem(kind, text)),
    to: section.scalar("to", plainText, null),
    proxy: section.scalar("proxy", proxyUrl, null),
    authority: readAuthority(section, home),
  };
  section.finish();
  reportSettings(section, kind);
  return url === null ? null : Object.freeze({ ...webhook, url });
}

/** What the kind of a webhook needs, and what it has no use for. */
function reportSettings(section: Section, kind: WebhookKind): void {
  const { report } = section;
  const has = (name: string) => section.entries().has(name);
  const useless = (name: string, problem: string) =>
    report.error(section.offsetOf(name), section.pathOf(name), problem, "remove it");
  if (!section.has("url"))
    report.error(section.at, section.path, "the webhook has no url", `url: ${ADDRESS_FORMS[kind]}`);
  if (has("secret") && !WITH_SECRET.includes(kind)) useless("secret", `${kind} has no secret but its url`);
  if (!section.has("to") && WITH_RECIPIENT.includes(kind))
    report.error(
      section.at,
      section.path,
      `${kind} needs to know for whom the messages are`,
      RECIPIENTS[kind],
    );
  if (has("to") && !WITH_RECIPIENT.includes(kind))
    useless("to", `the url of ${kind} says for whom the messages are`);
}

const RECIPIENTS: Readonly<Partial<Record<WebhookKind, string>>> = {
  telegram: 'to: "123456789", the id of the chat',
  ntfy: "to: the topic",
  bark: "to: the key of the device",
};

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
