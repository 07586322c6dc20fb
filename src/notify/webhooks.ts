import { createHmac } from "node:crypto";
import type { WebhookKind } from "../config/schema.ts";
import { countAt, fieldAt, numberAt, objectAt, parseObject } from "../core/json.ts";
import { HOUR_MS } from "../core/units.ts";
import { DELIVERED, type Message, type Outcome, textOf, titleOf, type Unsent } from "./message.ts";

/* How each kind of receiver is called, and what its answers mean. */

/** Where a message goes. All of it is secret. */
export interface Target {
  readonly url: string;
  /** null: messages are not signed. */
  readonly secret: string | null;
  readonly to: string | null;
}

/** A POST. */
export interface Outgoing {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface Reply {
  readonly status: number;
  /** The header. */
  readonly retryAfter: string | null;
  /** Its first few kilobytes. */
  readonly body: string;
}

interface WebhookRules {
  request(message: Message, target: Target, now: number): Outgoing;
  /** What a reply means whose status is from 200 to 299. */
  judge(reply: Reply): Outcome;
  /** Between two messages, so that the receiver's own limit is kept. */
  readonly paceMs: number;
}

export const WEBHOOKS: Readonly<Record<WebhookKind, WebhookRules>> = {
  generic: { request: standardRequest, judge: () => DELIVERED, paceMs: 0 },
  slack: { request: slackRequest, judge: () => DELIVERED, paceMs: 1000 },
  feishu: { request: feishuRequest, judge: judgeFeishu, paceMs: 700 },
  dingtalk: { request: dingtalkRequest, judge: judgeDingtalk, paceMs: 3000 },
  wecom: { request: wecomRequest, judge: judgeWecom, paceMs: 3000 },
  telegram: { request: telegramRequest, judge: judgeTelegram, paceMs: 1000 },
  ntfy: { request: ntfyRequest, judge: () => DELIVERED, paceMs: 0 },
  bark: { request: barkRequest, judge: judgeBark, paceMs: 0 },
};

/** What a reply of a receiver of this kind means. */
export function judgeReply(kind: WebhookKind, reply: Reply, now: number): Outcome {
  const { status } = reply;
  if (status >= 200 && status <= 299) return WEBHOOKS[kind].judge(reply);
  const known = kind === "telegram" && reply.body !== "" ? judgeTelegram(reply) : null;
  return known ?? judgeStatus(reply, kind === "slack" ? slackWord(reply.body) : "", now);
}

const CHECK_ADDRESS = "check its url in config.yaml";

/** @param word what the receiver says about it, if that is known to be harmless */
function judgeStatus({ status, retryAfter }: Reply, word: string, now: number): Unsent {
  const answered = `it answered ${status}${word === "" ? "" : ` (${word})`}`;
  if (status >= 300 && status <= 399) {
    const problem = `it answered with a redirect (${status}), which is not followed`;
    return { result: "retry", problem, next: "write the address to which it redirects as its url" };
  }
  if (status === 410)
    return { result: "gone", problem: `${answered}: it wants no more messages`, next: CHECK_ADDRESS };
  if (status === 413)
    return { result: "gave-up", problem: `${answered}: the message is too long`, next: null };
  if (status === 429 || status === 503)
    return { result: "retry", problem: answered, next: null, afterMs: retryAfterMs(retryAfter, now) };
  if (status === 408 || status >= 500) return { result: "retry", problem: answered, next: null };
  return refused(answered, status === 401 || status === 403 ? CHECK_SECRET_OR_ADDRESS : CHECK_ADDRESS);
}

const CHECK_SECRET_OR_ADDRESS = "check its url and secret in config.yaml";

function refused(problem: string, next: string): Unsent {
  return { result: "retry", problem, next, isRefused: true };
}

const MAX_RETRY_AFTER_MS = HOUR_MS;

/** Seconds, or a date. */
function retryAfterMs(header: string | null, now: number): number {
  if (header === null) return 0;
  const wait = /^\d{1,9}$/.test(header) ? Number(header) * 1000 : Date.parse(header) - now;
  return Number.isNaN(wait) ? 0 : Math.min(Math.max(0, wait), MAX_RETRY_AFTER_MS);
}

/** The number with which a receiver says how it went, where 200 is its status also of a failure. */
function judgeCode(
  code: number | null,
  known: Readonly<Record<number, string>>,
  limits: readonly number[],
): Outcome {
  if (code === 0) return DELIVERED;
  if (code === null) return refused("its answer is not one of such a webhook", CHECK_ADDRESS);
  const problem = `it answered with error code ${code}`;
  if (limits.includes(code)) return { result: "retry", problem, next: null, afterMs: BUSY_MS };
  return refused(problem, known[code] ?? CHECK_ADDRESS);
}

/** Limits of these services are per minute. */
const BUSY_MS = 60_000;

function json(url: string, body: unknown, headers: Readonly<Record<string, string>> = {}): Outgoing {
  return { url, headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
}

function hmac(key: string | Buffer, message: string): string {
  return createHmac("sha256", key).update(message).digest("base64");
}

// generic: Standard Webhooks 1.0.0, https://www.standardwebhooks.com

function standardRequest(message: Message, { url, secret }: Target, now: number): Outgoing {
  const type = `keybearer.${message.kind}`;
  const outgoing = json(url, { type, timestamp: new Date(message.at).toISOString(), data: message });
  // The time of this attempt: receivers refuse what is older than five minutes. The id is the same at each.
  const timestamp = String(Math.floor(now / 1000));
  const headers: Record<string, string> = {
    ...outgoing.headers,
    "webhook-id": message.id,
    "webhook-timestamp": timestamp,
  };
  if (secret !== null) {
    const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
    headers["webhook-signature"] = `v1,${hmac(key, `${message.id}.${timestamp}.${outgoing.body}`)}`;
  }
  return { ...outgoing, headers };
}

// slack

function slackRequest(message: Message, { url }: Target): Outgoing {
  const text = `${titleOf(message)}\n${textOf(message)}`;
  // In `text` these three begin links and mentions. A block of plain text has neither.
  const escaped = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const section = { type: "section", text: { type: "plain_text", text } };
  return json(url, { text: escaped, blocks: [section] });
}

/** Only what Slack documents is repeated: an answer could hold anything. */
function slackWord(body: string): string {
  return SLACK_WORDS.includes(body.trim()) ? body.trim() : "";
}

const SLACK_WORDS = [
  "invalid_payload",
  "user_not_found",
  "action_prohibited",
  "channel_not_found",
  "channel_is_archived",
  "no_service",
  "no_service_id",
  "no_team",
  "no_text",
  "invalid_token",
  "team_disabled",
  "posting_to_general_channel_denied",
  "rollup_error",
];

// feishu, and Lark

const FEISHU_COLORS = { critical: "red", warning: "orange", info: "green" } as const;

function feishuRequest(message: Message, { url, secret }: Target, now: number): Outgoing {
  const timestamp = String(Math.floor(now / 1000));
  // The key is what other services sign, and the message is empty.
  const signed = secret === null ? {} : { timestamp, sign: hmac(`${timestamp}\n${secret}`, "") };
  // Plain text, because in lark_md and in messages of type text a tag mentions everybody.
  const card = {
    header: {
      title: { tag: "plain_text", content: titleOf(message) },
      template: FEISHU_COLORS[message.state === "ended" ? "info" : message.severity],
    },
    elements: [{ tag: "div", text: { tag: "plain_text", content: textOf(message) } }],
  };
  return json(url, { ...signed, msg_type: "interactive", card });
}

function judgeFeishu({ body }: Reply): Outcome {
  const answer = parseObject(body);
  const code = numberAt(answer, "code") ?? numberAt(answer, "StatusCode");
  return judgeCode(
    code,
    {
      19021: "check its secret in config.yaml, and this machine's clock",
      19022: "allow this machine's address in the robot's settings",
      19024: "add keybearer to the robot's custom keywords",
    },
    [9499, 11232],
  );
}

// dingtalk

function dingtalkRequest(message: Message, { url, secret }: Target, now: number): Outgoing {
  const address = new URL(url);
  if (secret !== null) {
    address.searchParams.set("timestamp", String(now));
    address.searchParams.set("sign", hmac(secret, `${now}\n${secret}`));
  }
  const title = titleOf(message);
  const text = `### ${escapeMarkdown(title)}\n\n${escapeMarkdown(textOf(message)).replaceAll("\n", "\n\n")}`;
  return json(address.href, { msgtype: "markdown", markdown: { title, text }, at: { isAtAll: false } });
}

/** Links and pictures: a picture is fetched by everybody who sees the message. */
function escapeMarkdown(text: string): string {
  return text.replace(/[[\]<>!*_`\\]/g, "\\$&");
}

function judgeDingtalk({ body }: Reply): Outcome {
  return judgeCode(
    numberAt(parseObject(body), "errcode"),
    {
      310000:
        "check its secret in config.yaml and this machine's clock, or add keybearer to the robot's keywords",
      300005: CHECK_ADDRESS,
    },
    [130101, 410100],
  );
}

// wecom

function wecomRequest(message: Message, { url }: Target): Outgoing {
  const content = `${titleOf(message)}\n${textOf(message)}`;
  return json(url, { msgtype: "text", text: { content } });
}

function judgeWecom({ body }: Reply): Outcome {
  return judgeCode(numberAt(parseObject(body), "errcode"), { 93000: CHECK_ADDRESS }, [45009]);
}

// telegram

function telegramRequest(message: Message, { url, to }: Target): Outgoing {
  const address = url.endsWith("/sendMessage") ? url : `${url}/sendMessage`;
  const text = `${titleOf(message)}\n${textOf(message)}`;
  return json(address, { chat_id: to, text, link_preview_options: { is_disabled: true } });
}

function judgeTelegram({ body }: Reply): Outcome {
  const answer = parseObject(body);
  if (fieldAt(answer, "ok") === true) return DELIVERED;
  const code = countAt(answer, "error_code");
  if (code === null) return refused("its answer is not one of Telegram", CHECK_ADDRESS);
  const problem = `it answered with error code ${code}`;
  const seconds = countAt(objectAt(answer, "parameters"), "retry_after");
  if (code === 429)
    return {
      result: "retry",
      problem,
      next: null,
      afterMs: Math.min((seconds ?? 60) * 1000, MAX_RETRY_AFTER_MS),
    };
  if (code >= 500) return { result: "retry", problem, next: null };
  return refused(problem, TELEGRAM_NEXT[code] ?? CHECK_ADDRESS);
}

const TELEGRAM_NEXT: Readonly<Record<number, string>> = {
  400: "check its to in config.yaml: the id of a chat in which the bot is",
  403: "open the chat in Telegram and allow the bot to write there",
};

// ntfy

const NTFY_PRIORITIES = { critical: 5, warning: 4, info: 2 } as const;
const NTFY_TAGS = { critical: "rotating_light", warning: "warning", info: "white_check_mark" } as const;

function ntfyRequest(message: Message, { url, secret, to }: Target): Outgoing {
  const severity = message.state === "ended" ? "info" : message.severity;
  const body = {
    topic: to,
    title: titleOf(message),
    message: textOf(message),
    priority: NTFY_PRIORITIES[severity],
    tags: [NTFY_TAGS[severity]],
  };
  if (secret === null) return json(url, body);
  // A token, or user:password.
  const isPassword = secret.includes(":");
  const credentials = isPassword ? `Basic ${Buffer.from(secret).toString("base64")}` : `Bearer ${secret}`;
  return json(url, body, { authorization: credentials });
}

// bark

const BARK_LEVELS = { critical: "timeSensitive", warning: "active", info: "passive" } as const;

function barkRequest(message: Message, { url, to }: Target): Outgoing {
  const address = new URL(url);
  if (address.pathname === "/") address.pathname = "/push";
  return json(address.href, {
    device_key: to,
    title: titleOf(message),
    body: textOf(message),
    group: "keybearer",
    level: BARK_LEVELS[message.state === "ended" ? "info" : message.severity],
  });
}

function judgeBark({ body }: Reply): Outcome {
  const code = numberAt(parseObject(body), "code");
  if (code === 200) return DELIVERED;
  if (code === null) return refused("its answer is not one of Bark", CHECK_ADDRESS);
  return refused(`it answered with error code ${code}`, "check its to in config.yaml: the key of the device");
}
