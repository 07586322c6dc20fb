import { setTimeout as pause } from "node:timers/promises";
import { loadConfig } from "../../config/load.ts";
import type { ConsoleLogin } from "../../config/schema.ts";
import { askDaemon, CONSOLE_TIMEOUT_MS } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import type { Problem } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { LoginAnswer, LoginRequest } from "../../mirror/login.ts";
import type { ConsoleStatus, MirrorReport } from "../../mirror/report/shape.ts";
import { fail, failNull, type Message, print, printText } from "../ui/messages.ts";
import { createPrompter, type Prompter } from "../ui/prompts.ts";
import { commandPaths } from "../ui/stdio.ts";
import { readConsoles } from "./consoles.ts";
import { formatKind } from "./messages.ts";

export interface LoginOptions {
  readonly refreshToken?: boolean;
  /** One of several accounts. */
  readonly account?: string;
}

/** `keybearer mirror login` */
export async function login(gateway: string | undefined, options: LoginOptions): Promise<void> {
  const paths = commandPaths();
  const console = await findConsole(paths, gateway);
  if (console === null) return;
  const refused = cannotLogIn(console, options);
  if (refused !== null) return fail(refused, EXIT.failed);
  const logins = await configuredLogins(paths, console.gateway);
  const configured = logins.find(({ name }) => name === (options.account ?? null));
  if (configured === undefined && logins.length > 0)
    return fail(noSuchAccount(console.gateway, options.account, logins), EXIT.usage);
  const prompter = createPrompter();
  try {
    // The person must see where the password goes.
    if (prompter.interactive) print(`${console.gateway}: ${formatKind(console)} at ${console.url}`);
    const given = await askCredentials(console, options, configured ?? {}, prompter);
    if ("problem" in given) return fail(given, EXIT.usage);
    const problem = await send(paths, console.gateway, options.account, given.credentials, prompter);
    if (problem !== null)
      return fail({ ...problem, problem: `not logged in: ${problem.problem}` }, EXIT.failed);
    const account = options.account === undefined ? "" : ` as ${options.account}`;
    const kept =
      console.kind === "sub2api" ? "a refresh token is kept, no password" : "the access token is kept";
    printText({
      problem: `logged in to ${console.gateway}${account}. ${kept}`,
      next: advice.mirrorSync(console.gateway),
    });
  } finally {
    prompter.close();
  }
}

/** null: the reason was printed. The name may be left out if there is only one console. */
async function findConsole(paths: Paths, gateway: string | undefined): Promise<MirrorReport | null> {
  const reports = await readConsoles(paths, gateway);
  if (reports === null) return null;
  const [report] = reports;
  if (report === undefined || reports.length > 1) {
    const commands = reports.map((each) => advice.mirrorLogin(each.gateway));
    return failNull(`there are several consoles. choose one:\n${commands.join("\n")}`, EXIT.usage);
  }
  return report.kind === null ? await detectKind(paths, report) : report;
}

const POLL_MS = 200;

/** Has the daemon detect the kind now, because it may wait an hour before it tries again by itself. */
async function detectKind(paths: Paths, before: MirrorReport): Promise<MirrorReport> {
  const path = `/sync/${encodeURIComponent(before.gateway)}`;
  const begun = await askDaemon<ConsoleStatus>(paths, "POST", path, {});
  const deadline = Date.now() + CONSOLE_TIMEOUT_MS;
  let report = before;
  while (begun.ok && Date.now() < deadline) {
    const asked = await askDaemon<MirrorReport[]>(paths, "GET", "/mirror");
    if (!asked.ok) break;
    report = asked.value.find(({ gateway }) => gateway === before.gateway) ?? before;
    if (report.kind !== null || report.state !== "syncing") break;
    await pause(POLL_MS);
  }
  return report;
}

/** Why a login is not possible there, or not in this way; null: it is. */
export function cannotLogIn(
  { gateway, kind, why, next }: MirrorReport,
  options: LoginOptions,
): Problem | null {
  if (kind === null) {
    const cause = why === null ? "" : ` (${why})`;
    const problem = `the kind of ${gateway}'s console is not known yet${cause}`;
    return { problem, next: next ?? `write kind: below gateways.${gateway}.console in config.yaml` };
  }
  if (options.refreshToken && kind !== "sub2api")
    return {
      problem: `--refresh-token is only for sub2api, and ${gateway} has ${kind}`,
      next: advice.mirrorLogin(gateway),
    };
  return null;
}

/** The logins in the config.yaml that the daemon uses. */
async function configuredLogins(paths: Paths, gateway: string): Promise<readonly ConsoleLogin[]> {
  const asked = await askDaemon<Status>(paths, "GET", "/status");
  if (!asked.ok) return [];
  const { config } = await loadConfig(asked.value.config.path, { home: paths.home, strict: false });
  return config?.gateways[gateway]?.console?.logins ?? [];
}

function noSuchAccount(gateway: string, typed: string | undefined, logins: readonly ConsoleLogin[]): Message {
  const names = logins.flatMap(({ name }) => (name === null ? [] : [name]));
  if (names.length === 0)
    return {
      problem: "config.yaml names no accounts",
      next: `below gateways.${gateway}.console: login: [{ name: ${typed} }, …]`,
    };
  const what = typed === undefined ? "there are several accounts" : `config.yaml has no account ${typed}`;
  const commands = names.map((name) => advice.mirrorLogin(gateway, name));
  return `${what}. choose one:\n${commands.join("\n")}`;
}

type Given = { readonly credentials: LoginRequest } | Problem;

/** Asks for what this kind of console needs, except for what config.yaml has already. */
export async function askCredentials(
  { gateway, kind }: MirrorReport,
  options: LoginOptions,
  configured: Partial<ConsoleLogin>,
  prompter: Prompter,
): Promise<Given> {
  if (options.refreshToken) {
    const token = trimmed(await prompter.secret("refresh token: "));
    return token === null ? missing("refresh token") : { credentials: { refresh_token: token } };
  }
  if (kind === "sub2api") {
    const email = configured.email ?? trimmed(await prompter.text("email: "));
    if (email === null) return missing("email, password");
    // Not trimmed: a password may begin or end with a space.
    const password = await prompter.secret(`password of ${email}: `);
    return password === null || password === "" ? missing("password") : { credentials: { email, password } };
  }
  const what = kind === "litellm" ? "a key of yours, not a tool's" : "access token";
  const token = trimmed(await prompter.secret(`${what}: `));
  if (token === null) return missing(what);
  if (kind !== "new-api") return { credentials: { access_token: token, user: null } };
  const user = configured.user ?? trimmed(await prompter.text("user id, a number: "));
  if (user === null) return missing("access token, user id");
  if (!/^\d{1,18}$/.test(user)) {
    const next = advice.mirrorLogin(gateway);
    return { problem: "the user id is a number, shown in the console's personal settings", next };
  }
  return { credentials: { access_token: token, user } };
}

/** Pasted text often has a space or a line break around it. */
function trimmed(text: string | null): string | null {
  const bare = text?.trim() ?? "";
  return bare === "" ? null : bare;
}

function missing(what: string): Given {
  const problem = `not logged in: input is missing. needed, one per line without a terminal: ${what}`;
  return { problem, next: null };
}

/** A code can be mistyped, and changes every half minute. */
const MAX_CODE_TRIES = 3;

/** Sends secrets over the daemon's own socket and nowhere else. Returns what went wrong, or null. */
async function send(
  paths: Paths,
  gateway: string,
  account: string | undefined,
  credentials: LoginRequest,
  prompter: Prompter,
): Promise<Problem | null> {
  const post = (request: LoginRequest) =>
    askDaemon<LoginAnswer>(
      paths,
      "POST",
      `/login/${encodeURIComponent(gateway)}`,
      account === undefined ? request : { ...request, account },
      CONSOLE_TIMEOUT_MS,
    );
  const first = await post(credentials);
  if (!first.ok) return first;
  if (first.value.state !== "second-factor") {
    const { problem } = first.value;
    return problem === null ? null : { problem, next: null };
  }
  const maxTries = prompter.interactive ? MAX_CODE_TRIES : 1;
  for (let tries = 1; ; tries += 1) {
    const code = trimmed(await prompter.secret("second factor, the code: "));
    if (code === null)
      return { problem: "the console asks for a second factor, and none was given", next: null };
    const second = await post({ code: code.replaceAll(" ", "") });
    if (!second.ok) return second;
    if (second.value.state === "done") return null;
    const problem = second.value.problem ?? "the second factor was not accepted";
    if (tries === maxTries) return { problem, next: null };
    print(problem);
  }
}
