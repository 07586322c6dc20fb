import { isAbsolute, join } from "node:path";
import { validate as isSchedule } from "node-cron";
import type { KeySource } from "../../core/key-source.ts";
import { DEFAULT_SCHEDULE, DEFAULT_TIMEOUTS } from "../defaults.ts";
import type { CertificateAuthority, Console, ConsoleLogin, Gateway, Group, Timeouts } from "../shape.ts";
import { asSection, quoted, type Read, type Section } from "../text/section.ts";
import type { Entry, Report } from "../text/tree.ts";
import { baseUrl, consoleUrl, isLoopback, messagesUrl, proxyUrl, withoutVersion } from "./address.ts";
import { type LiteralFault, passwordFault, readKeySource } from "./key.ts";
import { duration, factor, flag, oneOf, words } from "./values.ts";

export function readGateway(
  entry: Entry,
  name: string,
  path: string,
  home: string,
  report: Report,
): Gateway | null {
  const section = asSection(entry.value, path, report);
  if (section === null) return null;
  const base = section.scalar("base_url", baseUrl, null);
  if (section.entries().get("base_url") === undefined) {
    report.error(section.at, path, "the gateway has no base_url", "base_url: https://gateway.example.com/v1");
  }
  const messages = section.scalar("messages_url", messagesUrl, null);
  const gateway = {
    name,
    baseUrl: base ?? "",
    messagesUrl: messages ?? withoutVersion(base ?? ""),
    keyHeader: section.scalar("key_header", oneOf("auto", "bearer", "x-api-key"), "auto" as const),
    websockets: section.scalar("websockets", flag, false),
    proxy: section.scalar("proxy", proxyUrl, null),
    authority: readAuthority(section, home),
    timeouts: readTimeouts(section.section("timeouts")),
    groups: section.named("groups", (group, _key, groupPath) => readGroup(group, groupPath, report)),
    console: readConsole(section.section("console"), base ?? "", home),
  };
  section.finish();
  checkProxy(gateway, section);
  return base === null ? null : Object.freeze(gateway);
}

function readAuthority(section: Section, home: string): CertificateAuthority | null {
  const path: Read<string> = (text) => {
    const file = text.startsWith("~/") ? join(home, text.slice(2)) : text;
    if (isAbsolute(file) && !file.includes("\0")) return { value: file };
    return { fault: "the path of a ca_file is not absolute", hint: "such as ca_file: /etc/ssl/company.pem" };
  };
  const file = section.scalar("ca_file", path, null);
  return file === null ? null : Object.freeze({ file, pem: "" });
}

type Addresses = Pick<Gateway, "proxy" | "baseUrl" | "messagesUrl">;

/** Through a proxy, http is in the clear for it: only one on this machine may see that, and trust asks about it too. */
function checkProxy({ proxy, baseUrl, messagesUrl }: Addresses, section: Section): void {
  if (proxy === null || isLoopback(new URL(proxy).hostname)) return;
  if (![baseUrl, messagesUrl].some((address) => address.startsWith("http:"))) return;
  const message = "an outbound proxy would see the key of a gateway that is called by http";
  const hint = "take it out; a gateway on this machine needs none";
  section.report.error(section.placeOf("proxy"), section.pathOf("proxy"), message, hint);
}

/** `gateway: URL`, the short way to write one gateway called main. */
export function gatewayFromUrl(name: string, base: string): Gateway {
  return Object.freeze({
    name,
    baseUrl: base,
    messagesUrl: withoutVersion(base),
    keyHeader: "auto",
    websockets: false,
    proxy: null,
    authority: null,
    timeouts: DEFAULT_TIMEOUTS,
    groups: Object.freeze(Object.create(null)),
    console: null,
  });
}

/** Timers hold no more than 2^31 milliseconds, about 24 days; beyond that they fire at once. */
const LONGEST = 24 * 3_600_000;

const timeout: Read<number> = (text) => {
  const reading = duration(text);
  if ("fault" in reading) return reading;
  if (reading.value === 0) return { fault: "a timeout of zero would end every call" };
  if (reading.value > LONGEST) return { fault: "a timeout is at most 24h" };
  return reading;
};

function readTimeouts(section: Section | null): Timeouts {
  if (section === null) return DEFAULT_TIMEOUTS;
  const timeouts = {
    connect: section.scalar("connect", timeout, DEFAULT_TIMEOUTS.connect),
    firstByte: section.scalar("first_byte", timeout, DEFAULT_TIMEOUTS.firstByte),
    idle: section.scalar("idle", timeout, DEFAULT_TIMEOUTS.idle),
  };
  section.finish();
  return Object.freeze(timeouts);
}

function readGroup(entry: Entry, path: string, report: Report): Group | null {
  const section = asSection(entry.value, path, report);
  if (section === null) return null;
  const models = section.scalars("models", words);
  const group = {
    multiplier: section.scalar("multiplier", factor, 1),
    models: section.entries().has("models") ? models : Object.freeze(["*"]),
    enabled: section.scalar("enabled", flag, true),
  };
  section.finish();
  return Object.freeze(group);
}

const schedule: Read<string> = (text) => {
  if (text.trim().split(/\s+/).length === 5 && isSchedule(text)) return { value: text };
  return {
    fault: `${quoted(text)} is not a schedule`,
    hint: 'five fields as cron has them, quoted: "*/5 * * * *"',
  };
};

function readConsole(section: Section | null, base: string, home: string): Console | null {
  if (section === null) return null;
  const url = section.scalar("url", consoleUrl, null);
  const consoleOf = {
    kind: section.scalar("kind", oneOf("sub2api", "new-api", "one-api", "litellm", "openrouter"), null),
    url: url ?? (URL.canParse(base) ? new URL(base).origin : ""),
    logins: readLogins(section, home),
    schedule: section.scalar("schedule", schedule, DEFAULT_SCHEDULE),
  };
  section.finish();
  return Object.freeze(consoleOf);
}

const NO_LOGIN: ConsoleLogin = Object.freeze({
  name: null,
  email: null,
  user: null,
  password: null,
  accessToken: null,
  refreshToken: null,
});

/** One login, or a list of them, each with a name of its own. */
function readLogins(section: Section, home: string): readonly ConsoleLogin[] {
  const entry = section.entry("login");
  const path = section.pathOf("login");
  const { report } = section;
  if (entry === undefined) return Object.freeze([NO_LOGIN]);
  if (entry.value.kind !== "list")
    return Object.freeze([readLogin(asSection(entry.value, path, report), home, false)]);
  const logins = entry.value.items.map((item, index) =>
    readLogin(asSection(item, `${path}[${index}]`, report), home, true),
  );
  const names = logins.map(({ name }) => name);
  for (const [index, name] of names.entries()) {
    if (name === null || names.indexOf(name) === index) continue;
    report.error(entry.value.at, `${path}[${index}].name`, `two accounts are called ${quoted(name)}`);
  }
  return Object.freeze(logins.length === 0 ? [NO_LOGIN] : logins);
}

/** It is part of commands, and of the names under which secrets are kept. */
const accountName: Read<string> = (text) =>
  /^[A-Za-z0-9][\w.-]{0,39}$/.test(text)
    ? { value: text }
    : { fault: `${quoted(text)} is not a name`, hint: "letters, digits, dots, hyphens and underscores" };

function readLogin(section: Section | null, home: string, isNamed: boolean): ConsoleLogin {
  if (section === null) return NO_LOGIN;
  const name = isNamed ? section.scalar("name", accountName, null) : null;
  if (isNamed && !section.entries().has("name"))
    section.report.error(section.at, section.pathOf("name"), "an account in a list has a name", "name: work");
  const secret = (name: string, literalFault?: LiteralFault): KeySource | null => {
    const entry = section.entry(name);
    if (entry === undefined) return null;
    return readKeySource(entry, section.pathOf(name), home, section.report, literalFault);
  };
  const login = {
    name,
    email: section.scalar("email", words, null),
    user: section.scalar("user", words, null),
    password: secret("password", passwordFault),
    accessToken: secret("access_token"),
    refreshToken: secret("refresh_token"),
  };
  section.finish();
  return Object.freeze(login);
}
