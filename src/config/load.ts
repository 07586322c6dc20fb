import { constants, existsSync } from "node:fs";
import { open } from "node:fs/promises";
import { dirname } from "node:path";
import { createSecureContext } from "node:tls";
import { errorMessage, hasCode } from "../core/errors.ts";
import { configModeProblem, type Mode, type Paths } from "../core/paths.ts";
import { type Parsed, parseConfig } from "./parse.ts";
import { type ConfigProblem, warning } from "./problems.ts";
import type { CertificateAuthority, Config, Gateway, Notify, Shared, Webhook } from "./schema.ts";
import { secretSources } from "./snapshot.ts";
import { MAX_BYTES } from "./yaml.ts";

export interface Loaded {
  /** False: there is no such file. */
  readonly found: boolean;
  /** null: the file could not be read. */
  readonly text: string | null;
  /** null: there is an error among the problems. */
  readonly config: Config | null;
  readonly problems: readonly ConfigProblem[];
  /** The result of the text alone. */
  readonly parsed: Parsed | null;
  /** The settings that the system service changed: their paths in config.yaml. */
  readonly overridden: readonly string[];
}

/** Where a configuration is, and whose it is. */
export type ConfigPlace = Pick<Paths, "config" | "home" | "mode" | "overrides">;

interface LoadOptions {
  /** The person's home folder, for `~/`. */
  readonly home: string;
  /** True: a file with a secret in it that others can read is an error. False: it is a warning. */
  readonly strict: boolean;
  /** The last result: the same text is not parsed again. */
  readonly before?: Loaded;
  /** Of the system service. Default: a person's own configuration. */
  readonly mode?: Mode;
  /** What the system service applies over config.yaml. Default nothing. */
  readonly overrides?: string | null;
}

/** What is read from the disk, with what the system service applies over it. */
type Effective = Read & {
  readonly problems?: readonly ConfigProblem[];
  readonly overridden?: readonly string[];
};

/** The text of config.yaml as it is in force. */
export async function readEffective({ config, home, overrides }: ConfigPlace): Promise<Effective> {
  const root = await readText(config);
  if (overrides === null || root.text === null) return root;
  // What is wrong with root's own text is said about that text.
  if (parseConfig(root.text, home).config === null) return root;
  const own = await readText(overrides);
  if (own.text === null) return own.found ? own : root;
  // Imported only here: a person's own keybearer has nothing that is applied over its config.yaml.
  const { applyOverrides } = await import("./overrides.ts");
  const layered = applyOverrides(root.text, own.text, home);
  if (!layered.ok) return { found: true, text: null, problem: layered.problem };
  return { found: true, ...layered };
}

/** Reads and checks config.yaml, its ca_files and its mode. */
export async function loadConfig(file: string, options: LoadOptions): Promise<Loaded> {
  const { home, strict, before, mode = "user", overrides = null } = options;
  const read = await readEffective({ config: file, home, mode, overrides });
  const { text, problems: layers = [], overridden = [] } = read;
  if (text === null)
    return {
      found: read.found,
      text,
      config: null,
      problems: [fileProblem(read.problem)],
      parsed: null,
      overridden,
    };
  const known = before?.text === text ? before.parsed : null;
  const parsed = known ?? parseConfig(text, home);
  if (parsed.config === null)
    return { found: true, text, config: null, problems: parsed.problems, parsed, overridden };
  const complete = await withAuthorities(parsed.config);
  const problems = [...layers, ...complete.problems];
  let { config } = complete;
  if (mode === "system") {
    const { withSystemRules } = await import("./system-rules.ts");
    const judged = await withSystemRules(config);
    config = judged.config;
    problems.push(...judged.problems);
  } else problems.push(...ownerProblems(config));
  problems.push(...modeProblems(file, config, { strict, mode }), ...gitProblems(file, config));
  const isUsable = problems.every((problem) => problem.severity === "warning");
  return {
    found: true,
    text,
    config: isUsable ? config : null,
    problems: [...parsed.problems, ...problems],
    parsed,
    overridden,
  };
}

function ownerProblems({ owners, tools }: Config): ConfigProblem[] {
  const named = Object.values(tools).find(({ owner }) => owner !== null);
  const path = owners.length > 0 ? "owners" : named === undefined ? null : `tools.${named.name}.owner`;
  return path === null
    ? []
    : [warning(path, "only the system service has owners, so this has no effect here")];
}

/** The configuration with the content of its ca_files. */
async function withAuthorities(config: Config): Promise<{ config: Config; problems: ConfigProblem[] }> {
  const problems: ConfigProblem[] = [];
  const gateways: Record<string, Gateway> = Object.create(null);
  for (const [name, gateway] of Object.entries(config.gateways)) {
    gateways[name] = gateway;
    if (gateway.authority === null) continue;
    const read = await readAuthority(gateway.authority);
    if (typeof read === "string")
      problems.push({ ...warning(`gateways.${name}.ca_file`, read), severity: "error" });
    else gateways[name] = Object.freeze({ ...gateway, authority: read });
  }
  const shared = await withStoreAuthority(config.shared, problems);
  const notify = await withWebhookAuthorities(config.notify, problems);
  const complete = { ...config, gateways: Object.freeze(gateways), shared, notify };
  return { config: Object.freeze(complete), problems };
}

async function withWebhookAuthorities(notify: Notify, problems: ConfigProblem[]): Promise<Notify> {
  const all = Object.entries(notify.webhooks);
  if (all.every(([, { authority }]) => authority === null)) return notify;
  const webhooks: Record<string, Webhook> = Object.create(null);
  for (const [name, webhook] of all) {
    webhooks[name] = webhook;
    if (webhook.authority === null) continue;
    const read = await readAuthority(webhook.authority);
    if (typeof read === "string")
      problems.push({ ...warning(`notify.webhooks.${name}.ca_file`, read), severity: "error" });
    else webhooks[name] = Object.freeze({ ...webhook, authority: read });
  }
  return Object.freeze({ ...notify, webhooks: Object.freeze(webhooks) });
}

async function withStoreAuthority(shared: Shared | null, problems: ConfigProblem[]): Promise<Shared | null> {
  const authority = shared?.store.authority ?? null;
  if (shared === null || authority === null) return shared;
  const read = await readAuthority(authority);
  if (typeof read === "string") {
    problems.push({ ...warning("shared.store.ca_file", read), severity: "error" });
    return shared;
  }
  return Object.freeze({ ...shared, store: Object.freeze({ ...shared.store, authority: read }) });
}

/** A text says why it cannot be used. */
async function readAuthority({ file }: CertificateAuthority): Promise<CertificateAuthority | string> {
  const read = await readText(file);
  if (read.text === null) return read.problem;
  const pem = read.text;
  try {
    createSecureContext({ ca: pem });
  } catch (error) {
    return `${file} contains a certificate that cannot be read: ${errorMessage(error)}`;
  }
  if (!pem.includes("-----BEGIN CERTIFICATE-----")) return `${file} contains no certificate in PEM format`;
  return Object.freeze({ file, pem });
}

export type Read = { found: boolean; text: null; problem: string } | { found: true; text: string };

/** Reads a small text file, or says why it cannot be read. */
export async function readText(file: string): Promise<Read> {
  try {
    // O_NONBLOCK: opening a named pipe would otherwise wait for its writer, and every later save with it.
    const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) return { found: true, text: null, problem: `${file} is not a file` };
      if (stat.size > MAX_BYTES)
        return { found: true, text: null, problem: `${file} is larger than 1 MB: not read` };
      const bytes = await handle.readFile();
      return { found: true, text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
    } finally {
      await handle.close();
    }
  } catch (error) {
    const found = !hasCode(error, "ENOENT");
    if (error instanceof TypeError) return { found, text: null, problem: `${file} is not UTF-8 text` };
    return {
      found,
      text: null,
      problem: found ? `${file} cannot be read: ${errorMessage(error)}` : `there is no ${file}`,
    };
  }
}

function modeProblems(
  file: string,
  config: Config,
  { strict, mode }: { readonly strict: boolean; readonly mode: Mode },
): ConfigProblem[] {
  const found = configModeProblem(file, mode);
  if (found === null) return [];
  const problem = warning("", found.problem, found.next);
  return [strict && holdsLiteral(config) ? { ...problem, severity: "error" } : problem];
}

function gitProblems(file: string, config: Config): ConfigProblem[] {
  if (!holdsLiteral(config)) return [];
  for (let folder = dirname(file); folder !== dirname(folder); folder = dirname(folder)) {
    if (existsSync(`${folder}/.git`)) {
      const hint = "use env:, file: or command:, so that no commit contains the key";
      return [warning("", `there is a key in ${file}, inside the git work tree ${folder}`, hint)];
    }
  }
  return [];
}

function holdsLiteral(config: Config): boolean {
  return secretSources(config).some(({ kind }) => kind === "literal");
}

function fileProblem(message: string): ConfigProblem {
  return { ...warning("", message), severity: "error" };
}
