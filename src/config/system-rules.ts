import { execFile } from "node:child_process";
import { lstat } from "node:fs/promises";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { errorMessage } from "../core/errors.ts";
import { type ConfigProblem, warning } from "./problems.ts";
import { type Config, describeSource, type KeySource, type Owner } from "./schema.ts";
import { consoleSources, webhookSources } from "./snapshot.ts";

/* What a configuration of the system service may say. It runs as a user of its own, without a session and without rights over others. */

interface Judged {
  readonly config: Config;
  readonly problems: readonly ConfigProblem[];
}

/** The configuration with the uids of its owners, and what cannot work in the system service. */
export async function withSystemRules(config: Config): Promise<Judged> {
  const problems: ConfigProblem[] = [...ownerProblems(config), ...processProblems(config)];
  const owners: Owner[] = [];
  for (const { name } of config.owners) {
    const uid = await findUid(name);
    owners.push(Object.freeze({ name, uid }));
    if (uid === null) problems.push(error("owners", `there is no user ${name}`, `id ${name}`));
  }
  for (const [path, source] of sourcesOf(config)) {
    const problem = await sourceProblem(path, source);
    if (problem !== null) problems.push(problem);
  }
  return { config: Object.freeze({ ...config, owners: Object.freeze(owners) }), problems };
}

function error(path: string, message: string, hint: string | null): ConfigProblem {
  return { ...warning(path, message, hint), severity: "error" };
}

function ownerProblems({ owners, tools }: Config): ConfigProblem[] {
  const names = owners.map(({ name }) => name);
  const unknown = Object.values(tools).filter(({ owner }) => owner !== null && !names.includes(owner));
  const problems = unknown.map(({ name, owner }) =>
    error(
      `tools.${name}.owner`,
      `${owner} is not among the owners`,
      `owners: [${[...names, owner].join(", ")}]`,
    ),
  );
  if (names.length === 0)
    problems.push(error("owners", "nobody may call: there are no owners", "owners: [alice]"));
  return problems;
}

function processProblems({ tools, usage }: Config): ConfigProblem[] {
  const problems = Object.values(tools)
    .filter(({ process }) => process !== null)
    .map(({ name }) =>
      error(
        `tools.${name}.process`,
        "the system service cannot see which program calls: that needs the rights of the user who calls",
        "remove it, and give the tool a token",
      ),
    );
  if (usage.project !== "off") {
    const message = "the system service cannot see in which folder a program works, so every project is null";
    problems.push(warning("usage.project", message, "remove it"));
  }
  return problems;
}

function sourcesOf({ tools, gateways, shared, notify }: Config): [string, KeySource][] {
  const found: [string, KeySource][] = Object.values(tools).map(({ name, key }) => [
    `tools.${name}.key`,
    key,
  ]);
  for (const gateway of Object.values(gateways))
    for (const { secret, source } of consoleSources(gateway))
      found.push([`gateways.${gateway.name}.console.login.${secret}`, source]);
  for (const webhook of Object.values(notify.webhooks))
    for (const { secret, source } of webhookSources(webhook))
      found.push([`notify.webhooks.${webhook.name}.${secret}`, source]);
  if (shared?.store.password) found.push(["shared.store.password", shared.store.password]);
  if (shared?.secret) found.push(["shared.secret", shared.secret]);
  if (notify.command !== null) found.push(["notify.command", { kind: "command", argv: notify.command }]);
  return found;
}

const INSTEAD = "file:~/keys/NAME (below /var/lib/keybearer), or credential:NAME";

async function sourceProblem(path: string, source: KeySource): Promise<ConfigProblem | null> {
  switch (source.kind) {
    case "keychain":
      return error(path, `${describeSource(source)}: the system service has no keychain`, INSTEAD);
    case "literal":
      return error(
        path,
        "a key must not be written in config.yaml of the system service, which owners read",
        INSTEAD,
      );
    case "env":
      return error(
        path,
        `${describeSource(source)}: the system service does not get variables of a shell`,
        INSTEAD,
      );
    case "command": {
      const changeable = await changeableBy(source.argv[0]);
      if (changeable === null) return null;
      return error(path, `${changeable}, so it could be replaced`, "use a program that only root can change");
    }
    default:
      return null;
  }
}

/** Why a program could be changed by another user than root; null: it could not. */
export async function changeableBy(program: string): Promise<string | null> {
  for (let path = program; ; path = dirname(path)) {
    try {
      const { uid, mode } = await lstat(path);
      const isLink = (mode & 0o170000) === 0o120000;
      if (uid !== 0) return `${path} does not belong to root`;
      if (!isLink && (mode & 0o022) !== 0 && (mode & 0o1000) === 0) return `other users can write to ${path}`;
    } catch (problem) {
      return `${path} cannot be checked (${errorMessage(problem)})`;
    }
    if (path === dirname(path)) return null;
  }
}

/** By the system's own tables of users. null: there is no such user. */
async function findUid(name: string): Promise<number | null> {
  try {
    const { stdout } = await promisify(execFile)("/usr/bin/id", ["-u", "--", name], {
      timeout: 5000,
      env: {},
    });
    return Number(stdout.trim());
  } catch {
    // id exits with 1 for a user it does not know.
    return null;
  }
}
