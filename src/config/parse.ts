import { validate as isSchedule } from "node-cron";
import { advice } from "../core/advice.ts";
import { DAY_MS, MINUTE_MS } from "../core/units.ts";
import { readMetrics, readNotify } from "./notify.ts";
import { type ConfigProblem, Report } from "./problems.ts";
import { checkReferences } from "./references.ts";
import {
  CONSOLE_KINDS,
  type Config,
  type Console,
  type ConsoleKind,
  type ConsoleLogin,
  type Dashboard,
  DEFAULT_DASHBOARD,
  DEFAULT_DRAIN,
  DEFAULT_LIMITS,
  DEFAULT_LISTEN,
  DEFAULT_LOG,
  DEFAULT_PREFIX,
  DEFAULT_TIMEOUTS,
  DEFAULT_USAGE,
  type Gateway,
  type Group,
  type KeySource,
  type Limits,
  type Log,
  type Named,
  type Owner,
  type Price,
  type SessionLimits,
  type Shared,
  type SharedStore,
  type Timeouts,
  type Token,
  type Tool,
  type Usage,
} from "./schema.ts";
import { asSection, quoted, type Reader, readScalar, Section } from "./section.ts";
import { passwordProblem, readAuthority, readKeySource } from "./sources.ts";
import {
  amount,
  baseUrl,
  consoleUrl,
  factor,
  flag,
  isLoopback,
  listen,
  messagesUrl,
  moment,
  oneOf,
  origin,
  parseCount,
  parseDollars,
  parseDuration,
  plainText,
  price,
  program,
  proxyUrl,
  requestRate,
  spendRate,
  storeUrl,
  timezone,
  tokenRate,
  withoutVersion,
} from "./values.ts";
import { type Entry, readTree, type Tree } from "./yaml.ts";

export interface Parsed {
  /** null when there is an error among the problems. */
  readonly config: Config | null;
  readonly problems: readonly ConfigProblem[];
}

/** Parses config.yaml's text. Pure: the same text and home folder give the same result. */
export function parseConfig(raw: string, home: string): Parsed {
  // A byte order mark is no column that a person can see.
  const text = raw.replace(/^\u{FEFF}/u, "");
  const report = new Report(text);
  const tree = readTree(text, report);
  if (tree === null) return { config: null, problems: report.problems() };
  const top = new Section(tree, "", report);
  const draft = {
    listen: top.scalar("listen", listen, DEFAULT_LISTEN),
    dashboard: readDashboard(top),
    drain: top.scalar("drain", drain, DEFAULT_DRAIN),
    gateways: readGateways(top, home),
    tools: top.named("tools", (section, name) => readTool(section, name, home), isToolName),
    prices: top.named("prices", readPrice),
    shared: readShared(top.section("shared"), home),
    owners: readOwners(top),
    usage: readUsage(top.section("usage")),
    notify: readNotify(top.section("notify"), home, isWebhookName),
    metrics: readMetrics(top),
    log: readLog(top.section("log")),
  };
  top.finish();
  const config = checkReferences(draft, top, report);
  const inOrder = report.problems().toSorted((a, b) => a.line - b.line || a.column - b.column);
  return { config: report.hasErrors() ? null : config, problems: inOrder };
}

/** Names that other readers of YAML turn into something else. A person who means the name quotes it. */
const AMBIGUOUS =
  /^(?:y|n|yes|no|on|off|true|false|null|~|[-+.\d][\d_.,:]*(?:e[-+]?\d+)?|0x[\da-f]+|0o[0-7]+)$/i;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const NAME_FORM = "letters, digits, dot, dash and underscore, at most 64, starting with a letter or digit";

function checkName(noun: string) {
  return (name: string, entry: Entry, path: string, report: Report): boolean => {
    if (entry.plain && AMBIGUOUS.test(name)) {
      const message = `YAML may not read ${name} as text`;
      report.error(entry.at, path, message, `quote it: "${name}"`);
      return false;
    }
    if (NAME.test(name)) return true;
    report.error(entry.at, path, `this cannot be the name of a ${noun}`, NAME_FORM);
    return false;
  };
}

const isToolName = checkName("tool");
const isGatewayName = checkName("gateway");
const isWebhookName = checkName("webhook");

/** As useradd takes it. */
const userName: Reader<string> = (text) =>
  /^[A-Za-z_][\w.-]{0,31}$/.test(text)
    ? { value: text }
    : { problem: `${quoted(text)} is not the name of a user`, next: "such as owners: [alice]" };

function readOwners(top: Section): readonly Owner[] {
  const names = new Set(top.scalars("owners", userName));
  return Object.freeze([...names].map((name) => Object.freeze({ name, uid: null })));
}

function readDashboard(top: Section): Dashboard {
  const entry = top.entry("dashboard");
  if (entry === undefined) return DEFAULT_DASHBOARD;
  if (entry.value.kind === "scalar" && entry.value.text !== "") {
    const isOn = top.scalar("dashboard", flag, true);
    return isOn ? DEFAULT_DASHBOARD : Object.freeze({ ...DEFAULT_DASHBOARD, when: "never" });
  }
  const section = asSection(entry.value, "dashboard", top.report);
  if (section === null) return DEFAULT_DASHBOARD;
  const dashboard = {
    listen: section.scalar("listen", listen, DEFAULT_DASHBOARD.listen),
    when: section.scalar("when", oneOf("asked", "always", "never"), DEFAULT_DASHBOARD.when),
  };
  section.finish();
  return Object.freeze(dashboard);
}

/** Longer, and a service manager, a logout or a shutdown of the machine would not wait for it. */
const MAX_DRAIN = 10 * MINUTE_MS;

const drain: Reader<number> = (text) => {
  const reading = parseDuration(text);
  if ("problem" in reading || (reading.value >= 1000 && reading.value <= MAX_DRAIN)) return reading;
  return { problem: "drain must be between 1s and 10m", next: "such as drain: 30s" };
};

function readPrice(section: Section): Price | null {
  const input = section.scalar("input", price, null);
  const output = section.scalar("output", price, null);
  const cacheRead = section.scalar("cache_read", price, null);
  const cacheWrite = section.scalar("cache_write", price, null);
  section.finish();
  const isComplete = section.entries().has("input") && section.entries().has("output");
  if (!isComplete)
    section.report.error(
      section.at,
      section.path,
      "a price needs input and output",
      "{ input: 1.0, output: 4.0 }",
    );
  if (input === null || output === null) return null;
  return Object.freeze({ input, output, cacheRead: cacheRead ?? input, cacheWrite: cacheWrite ?? input });
}

function readUsage(section: Section | null): Usage {
  if (section === null) return DEFAULT_USAGE;
  const usage = {
    keep: section.scalar("keep", parseDuration, DEFAULT_USAGE.keep),
    sync: section.scalar("sync", oneOf("normal", "full"), DEFAULT_USAGE.sync),
    project: section.scalar("project", oneOf("path", "name", "off"), DEFAULT_USAGE.project),
    sameModels: readSameModels(section.section("same_models")),
  };
  section.finish();
  return Object.freeze(usage);
}

/** asked: answered, or a list of names that answer. */
function readSameModels(section: Section | null): Usage["sameModels"] {
  const models: Record<string, readonly string[]> = Object.create(null);
  for (const asked of section?.entries().keys() ?? [])
    models[asked] = section?.scalars(asked, plainText) ?? [];
  section?.finish();
  return Object.freeze(models);
}

function readLog(section: Section | null): Log {
  if (section === null) return DEFAULT_LOG;
  const level = section.scalar("level", oneOf("trace", "debug", "info", "warn", "error"), DEFAULT_LOG.level);
  section.finish();
  return Object.freeze({ level });
}

// Several machines.

const machineName: Reader<string> = (text) =>
  NAME.test(text)
    ? { value: text }
    : { problem: `${quoted(text)} cannot be the name of a machine`, next: NAME_FORM };

const prefix: Reader<string> = (text) =>
  /^[a-z0-9_-]{1,32}$/.test(text)
    ? { value: text }
    : {
        problem: `${quoted(text)} cannot be a prefix`,
        next: "lower-case letters, digits, dash and underscore, at most 32, such as keybearer",
      };

function readShared(section: Section | null, home: string): Shared | null {
  if (section === null) return null;
  const store = readStore(section, home);
  const settings = {
    secret: readKeySource(section, "secret", home),
    machine: section.scalar("machine", machineName, null),
    timezone: section.scalar("timezone", timezone, null),
    whenUnreachable: section.scalar("when_unreachable", oneOf("grant", "refuse"), "grant" as const),
  };
  section.finish();
  return store === null ? null : Object.freeze({ store, ...settings });
}

/** An address, or a map with an address and what else is needed to log in. */
function readStore(shared: Section, home: string): SharedStore | null {
  const entry = shared.entry("store");
  const { report } = shared;
  if (entry === undefined) {
    const hint = "store: rediss://valkey.example.net:6379";
    if (!shared.has("store")) report.error(shared.at, shared.path, "shared needs a store", hint);
    return null;
  }
  const path = shared.pathOf("store");
  if (entry.value.kind !== "dict") {
    const url = readScalar(entry.value, path, storeUrl, report);
    if (url === undefined) return null;
    return Object.freeze({ url, username: null, password: null, authority: null, prefix: DEFAULT_PREFIX });
  }
  const section = new Section(entry.value, path, report);
  const url = section.scalar("url", storeUrl, null);
  const settings = {
    username: section.scalar("username", plainText, null),
    password: readKeySource(section, "password", home, passwordProblem),
    authority: readAuthority(section, home),
    prefix: section.scalar("prefix", prefix, DEFAULT_PREFIX),
  };
  section.finish();
  if (!section.has("url")) {
    const hint = "url: rediss://valkey.example.net:6379";
    report.error(section.at, section.path, "the store has no url", hint);
  }
  if (section.entries().has("username") && !section.has("password")) {
    const hint = "password: keychain:keybearer/shared";
    report.error(
      section.offsetOf("username"),
      section.pathOf("username"),
      "a username needs a password",
      hint,
    );
  }
  if (settings.authority !== null && url?.startsWith("redis:")) {
    const hint = `write rediss:${url.slice("redis:".length)}, or remove the ca_file`;
    const message = "a ca_file has no effect without TLS";
    report.error(section.offsetOf("ca_file"), section.pathOf("ca_file"), message, hint);
  }
  return url === null ? null : Object.freeze({ url, ...settings });
}

// Gateways.

function readGateways(top: Section, home: string): Named<Gateway> {
  const single = top.scalar("gateway", baseUrl, null);
  const several = top.named("gateways", (section, name) => readGateway(section, name, home), isGatewayName);
  const gateway = top.entries().get("gateway");
  if (gateway !== undefined && top.entries().has("gateways"))
    top.report.error(gateway.at, "gateway", "both gateway and gateways are set", "keep one of the two");
  if (single === null || top.entries().has("gateways")) return several;
  const result: Record<string, Gateway> = Object.create(null);
  result.main = gatewayFromUrl("main", single);
  return Object.freeze(result);
}

/** `gateway: URL`, the short form of one gateway called main. */
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

function readGateway(section: Section, name: string, home: string): Gateway | null {
  const base = section.scalar("base_url", baseUrl, null);
  if (!section.has("base_url")) {
    const hint = "base_url: https://gateway.example.com/v1";
    section.report.error(section.at, section.path, "the gateway has no base_url", hint);
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
    groups: section.named("groups", readGroup),
    console: readConsole(section.section("console"), base ?? "", home),
  };
  section.finish();
  checkProxy(gateway, section);
  return base === null ? null : Object.freeze(gateway);
}

/** A proxy sees what is sent by http, so then only one on this machine is allowed. */
function checkProxy({ proxy, baseUrl: base, messagesUrl: messages }: Gateway, section: Section): void {
  if (proxy === null || isLoopback(new URL(proxy).hostname)) return;
  if (![base, messages].some((address) => address.startsWith("http:"))) return;
  const message = "an outbound proxy could read the key, because this gateway's address begins with http://";
  const hint = "remove it: a gateway on this machine needs no proxy";
  section.report.error(section.offsetOf("proxy"), section.pathOf("proxy"), message, hint);
}

/** Node's timers hold at most 2^31 milliseconds, about 24 days, and fire at once beyond that. */
const MAX_TIMEOUT = DAY_MS;

const timeout: Reader<number> = (text) => {
  const reading = parseDuration(text);
  if ("problem" in reading) return reading;
  if (reading.value === 0) return { problem: "a timeout of zero would end every call", next: null };
  return atMostADay(reading.value);
};

/** 0 switches it off. */
const timeoutOrZero: Reader<number> = (text) => {
  const reading = parseDuration(text);
  return "problem" in reading ? reading : atMostADay(reading.value);
};

function atMostADay(value: number): ReturnType<Reader<number>> {
  return value > MAX_TIMEOUT ? { problem: "a timeout is at most 24h", next: null } : { value };
}

function readTimeouts(section: Section | null): Timeouts {
  if (section === null) return DEFAULT_TIMEOUTS;
  const timeouts = {
    connect: section.scalar("connect", timeout, DEFAULT_TIMEOUTS.connect),
    retryConnect: section.scalar("retry_connect", timeoutOrZero, DEFAULT_TIMEOUTS.retryConnect),
    firstByte: section.scalar("first_byte", timeout, DEFAULT_TIMEOUTS.firstByte),
    idle: section.scalar("idle", timeout, DEFAULT_TIMEOUTS.idle),
  };
  section.finish();
  return Object.freeze(timeouts);
}

function readGroup(section: Section): Group {
  const models = section.scalars("models", plainText);
  const group = {
    multiplier: section.scalar("multiplier", factor, 1),
    models: section.entries().has("models") ? models : Object.freeze(["*"]),
    enabled: section.scalar("enabled", flag, true),
  };
  section.finish();
  return Object.freeze(group);
}

const schedule: Reader<string> = (text) => {
  if (text.trim().split(/\s+/).length === 5 && isSchedule(text)) return { value: text };
  return {
    problem: `${quoted(text)} is not a schedule`,
    next: 'write five cron fields in quotes: "*/5 * * * *"',
  };
};

const consoleKind: Reader<ConsoleKind> = (text) => {
  if (text !== "openrouter") return oneOf(...CONSOLE_KINDS)(text);
  return {
    problem: `a console of kind ${text} is not supported yet; ${CONSOLE_KINDS.join(", ")} are`,
    next: "omit console: to run without a mirror",
  };
};

function readConsole(section: Section | null, base: string, home: string): Console | null {
  if (section === null) return null;
  const url = section.scalar("url", consoleUrl, null);
  const settings = {
    kind: section.scalar("kind", consoleKind, null),
    url: url ?? (URL.canParse(base) ? new URL(base).origin : ""),
    logins: readLogins(section, home),
    schedule: section.scalar("schedule", schedule, null),
  };
  section.finish();
  return Object.freeze(settings);
}

const NO_LOGIN: ConsoleLogin = Object.freeze({
  name: null,
  email: null,
  user: null,
  password: null,
  accessToken: null,
  refreshToken: null,
});

/** One login, or a list of logins with names. */
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

/** Part of commands and, for accounts, of the names under which secrets are stored. */
const shortName: Reader<string> = (text) =>
  /^[A-Za-z0-9][\w.-]{0,39}$/.test(text)
    ? { value: text }
    : { problem: `${quoted(text)} is not a name`, next: "letters, digits, dots, hyphens and underscores" };

function readLogin(section: Section | null, home: string, isNamed: boolean): ConsoleLogin {
  if (section === null) return NO_LOGIN;
  const name = isNamed ? section.scalar("name", shortName, null) : null;
  if (isNamed && !section.entries().has("name"))
    section.report.error(
      section.at,
      section.pathOf("name"),
      "an account in a list needs a name",
      "name: work",
    );
  const login = {
    name,
    email: section.scalar("email", plainText, null),
    user: section.scalar("user", plainText, null),
    password: readKeySource(section, "password", home, passwordProblem),
    accessToken: readKeySource(section, "access_token", home),
    refreshToken: readKeySource(section, "refresh_token", home),
  };
  section.finish();
  return Object.freeze(login);
}

// Tools.

/** The gateway's console and the clients in flight need time for each rotation. */
const MIN_KEY_AGE = DAY_MS;

const keyAge: Reader<number> = (text) => {
  const reading = parseDuration(text);
  if ("problem" in reading || reading.value >= MIN_KEY_AGE) return reading;
  return { problem: "a key is rotated once a day at most", next: "such as rotate_every: 90d" };
};

/** The gateway is empty where the tool names none; checkReferences fills in the only one. */
function readTool(section: Section, name: string, home: string): Tool {
  const defaultKey: KeySource = Object.freeze({ kind: "keychain", service: "keybearer", account: name });
  const tool = {
    name,
    gateway: section.scalar("gateway", plainText, ""),
    group: section.scalar("group", plainText, null),
    key: readKeySource(section, "key", home) ?? defaultKey,
    tokens: readTokens(section, name),
    tokenInUrl: section.scalar("token_in_url", flag, false),
    process: section.scalar("process", program, null),
    allowOrigins: section.scalars("allow_origins", origin),
    model: section.scalar("model", plainText, null),
    limits: readLimits(section.section("limits")),
    quota: section.scalar("quota", parseDollars, null),
    expires: section.scalar("expires", moment, null),
    enabled: section.scalar("enabled", flag, true),
    askUsage: section.scalar("ask_usage", flag, false),
    estimate: section.scalar("estimate", flag, false),
    keysElsewhere: section.scalar("keys_elsewhere", flag, false),
    watchOnly: section.scalar("watch_only", flag, false),
    rotateEvery: section.scalar("rotate_every", keyAge, null),
    onLeak: section.scalar("on_leak", oneOf("report", "rotate"), "report"),
    shared: section.scalar("shared", flag, true),
    owner: section.scalar("owner", userName, null),
  };
  section.finish();
  return tool;
}

/** One token or a list of them. Each is a hash, or a map with a name, a hash and the day it was made. */
function readTokens(section: Section, tool: string): readonly Token[] {
  const entry = section.entry("token");
  if (entry === undefined) return Object.freeze([]);
  const { report } = section;
  const path = section.pathOf("token");
  const isList = entry.value.kind === "list";
  const items: readonly Tree[] = entry.value.kind === "list" ? entry.value.items : [entry.value];
  const tokens: Token[] = [];
  for (const [index, item] of items.entries()) {
    const itemPath = isList ? `${path}[${index}]` : path;
    const token = readToken(item, itemPath, tool, report);
    if (token === null) continue;
    if (tokens.some(({ name, hash }) => name === token.name && hash !== token.hash))
      report.error(item.at, itemPath, `two tokens of ${tool} are called ${quoted(token.name)}`);
    tokens.push(token);
  }
  return Object.freeze(tokens);
}

function readToken(tree: Tree, path: string, tool: string, report: Report): Token | null {
  // Other names in a map are not repeated: in `{the-token-itself}` the token is one.
  if (tree.kind === "dict" && !tree.entries.has("hash")) {
    const hint = `remove it, then run ${advice.newToken(tool)}`;
    report.error(tree.at, path, "a token in a map needs a hash", hint);
    return null;
  }
  if (tree.kind !== "dict") {
    const hash = readScalar(tree, path, tokenHash(tool), report);
    return hash === undefined ? null : Object.freeze({ name: hash.slice(0, 8), hash, created: null });
  }
  const section = new Section(tree, path, report);
  const hash = section.scalar("hash", tokenHash(tool), null);
  const name = section.scalar("name", shortName, null);
  const created = section.scalar("created", day, null);
  section.finish();
  return hash === null ? null : Object.freeze({ name: name ?? hash.slice(0, 8), hash, created });
}

/** Only shown, so it stays a text. */
const day: Reader<string> = (text) =>
  /^\d{4}-\d{2}-\d{2}$/.test(text)
    ? { value: text }
    : { problem: `${quoted(text)} is not a day`, next: "such as 2026-11-16" };

function tokenHash(tool: string): Reader<string> {
  return (text) => {
    const hash = /^sha256:([0-9a-f]{64})$/i.exec(text)?.[1];
    if (hash !== undefined) return { value: hash.toLowerCase() };
    const problem = text.startsWith("kb_")
      ? "this is the token itself; config.yaml may contain only its hash"
      : "this is not the hash of a token";
    return { problem, next: `remove it, then run ${advice.newToken(tool)}` };
  };
}

function readLimits(section: Section | null): Limits {
  if (section === null) return DEFAULT_LIMITS;
  const limits = {
    requests: section.scalars("requests", requestRate),
    tokens: section.scalars("tokens", tokenRate),
    spend: section.scalars("spend", spendRate),
    concurrent: section.scalar("concurrent", parseCount, null),
    wait: section.scalar("wait", parseDuration, 0),
    session: readSessionLimits(section.section("session")),
  };
  section.finish();
  return Object.freeze(limits);
}

function readSessionLimits(section: Section | null): SessionLimits | null {
  if (section === null) return null;
  const limits = {
    requests: section.scalar("requests", amount, null),
    tokens: section.scalar("tokens", amount, null),
    spend: section.scalar("spend", parseDollars, null),
  };
  section.finish();
  const hasAny = limits.requests !== null || limits.tokens !== null || limits.spend !== null;
  if (section.entries().size === 0)
    section.report.error(section.at, section.path, "no limit for a session is set", "{ spend: $5 }");
  return hasAny ? Object.freeze(limits) : null;
}
