import { setTimeout as pause } from "node:timers/promises";
import { loadConfig } from "../../config/load.ts";
import type { ConsoleLogin } from "../../config/schema.ts";
import { askDaemon, CONSOLE_TIMEOUT_MS } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import type { LoginAnswer, LoginRequest } from "../../mirror/login.ts";
import type { ConsoleStatus, MirrorReport } from "../../mirror/report/shape.ts";
import { fail, print } from "../ui/messages.ts";
import { createPrompter, type Prompter } from "../ui/prompts.ts";
import { readOneConsole } from "./consoles.ts";
import { cannotLogIn, credentialsFor, type LoginOptions, trimmed } from "./credentials.ts";
import { kindInWords } from "./headline.ts";

/** A code can be mistyped, and is another one half a minute later. */
const TRIES = 3;
const BETWEEN_MS = 200;

export async function login(gateway: string | undefined, options: LoginOptions): Promise<void> {
  const paths = findPaths();
  const listed = await readOneConsole(paths.socket, gateway, "keybearer mirror login");
  if (listed === null) return;
  const found = listed.kind === null ? await withKind(paths.socket, listed) : listed;
  const fault = cannotLogIn(found, options);
  if (fault !== null) return fail(fault, EXIT.failed);
  const logins = await knownLogins(paths, found.gateway);
  const known = logins.find(({ name }) => name === (options.account ?? null));
  if (known === undefined && logins.length > 0)
    return fail(noAccount(found.gateway, options.account, logins), EXIT.usage);
  const answers = createPrompter();
  try {
    // Whoever types a password must see where it goes.
    if (answers.interactive) print(`${found.gateway}: ${kindInWords(found)} at ${found.url}`);
    const given = await credentialsFor(found, options, known ?? {}, answers);
    if ("fault" in given) return fail(given.fault, EXIT.usage);
    const problem = await send(paths.socket, found.gateway, options.account, given.credentials, answers);
    if (problem !== null) return fail(`not logged in: ${problem}`, EXIT.failed);
    const which = options.account === undefined ? "" : ` as ${options.account}`;
    print(
      `logged in to ${found.gateway}${which}. ${keptOf(found.kind)} → keybearer mirror sync ${found.gateway}`,
    );
  } finally {
    answers.close();
  }
}

/** Has the daemon detect the kind now: it may wait an hour before it tries again by itself. */
async function withKind(socket: string, before: MirrorReport): Promise<MirrorReport> {
  const path = `/sync/${encodeURIComponent(before.gateway)}`;
  const begun = await askDaemon<ConsoleStatus>(socket, "POST", path, {});
  const until = Date.now() + CONSOLE_TIMEOUT_MS;
  let report = before;
  while (begun.ok && Date.now() < until) {
    const asked = await askDaemon<MirrorReport[]>(socket, "GET", "/mirror");
    report = (asked.ok ? asked.value.find(({ gateway }) => gateway === before.gateway) : null) ?? before;
    if (!asked.ok || report.kind !== null || report.state !== "syncing") break;
    await pause(BETWEEN_MS);
  }
  return report;
}

/** What config.yaml says already, of the file that the daemon goes by. */
async function knownLogins({ socket, home }: Paths, gateway: string): Promise<readonly ConsoleLogin[]> {
  const asked = await askDaemon<Status>(socket, "GET", "/status");
  if (!asked.ok) return [];
  const { config } = await loadConfig(asked.value.config.path, { home, strict: false });
  return config?.gateways[gateway]?.console?.logins ?? [];
}

function noAccount(gateway: string, typed: string | undefined, logins: readonly ConsoleLogin[]): string {
  const names = logins.flatMap(({ name }) => (name === null ? [] : [name]));
  if (names.length === 0)
    return `config.yaml names no accounts → below gateways.${gateway}.console: login: [{ name: ${typed} }, …]`;
  const said = typed === undefined ? "there are several accounts" : `config.yaml has no account ${typed}`;
  return `${said}. print which:\n${names.map((name) => `keybearer mirror login ${gateway} --account ${name}`).join("\n")}`;
}

/** null: it is done. Secrets go over the daemon's own socket and nowhere else. */
async function send(
  socket: string,
  gateway: string,
  account: string | undefined,
  credentials: LoginRequest,
  answers: Prompter,
): Promise<string | null> {
  const ask = (asked: LoginRequest) =>
    askDaemon<LoginAnswer>(
      socket,
      "POST",
      `/login/${encodeURIComponent(gateway)}`,
      account === undefined ? asked : { ...asked, account },
      CONSOLE_TIMEOUT_MS,
    );
  const answer = await ask(credentials);
  if (!answer.ok) return answer.reason;
  if (answer.value.state !== "second-factor") return answer.value.problem;
  for (let tries = answers.interactive ? TRIES : 1; ; ) {
    const code = trimmed(await answers.secret("second factor, the code: "));
    if (code === null) return "it wants a second factor, and none was given";
    const second = await ask({ code: code.replaceAll(" ", "") });
    if (!second.ok) return second.reason;
    if (second.value.state === "done") return null;
    const problem = second.value.problem ?? "the second factor was not accepted";
    tries -= 1;
    if (tries === 0) return problem;
    print(problem);
  }
}

function keptOf(kind: MirrorReport["kind"]): string {
  return kind === "sub2api" ? "a refresh token is kept, no password" : "the access token is kept";
}
