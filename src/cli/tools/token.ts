import {
  countTokens,
  freeTokenName,
  type NewToken,
  removeToken,
  setToken,
  tokenEntry,
} from "../../config/edit-tools.ts";
import type { ToolStatus } from "../../control/tool-status.ts";
import { advice, withConfig } from "../../core/advice.ts";
import { systemClock } from "../../core/clock.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { makeToken, tokenShape } from "../../core/token.ts";
import { readTokenUses } from "../../proxy/token-uses.ts";
import { activeRevision, editConfig, findTool, readConfig, waitUntilActive } from "../config-change.ts";
import { canceled, fail, failNull, notice, print, printJson, printText } from "../ui/messages.ts";
import { agrees, canConfirm } from "../ui/prompts.ts";
import { commandPaths, isOwners, stdio } from "../ui/stdio.ts";
import { columnsFor, renderTable } from "../ui/table.ts";
import { stdoutScreen } from "../ui/terminal.ts";
import { ago } from "../ui/units.ts";
import type { Inputs } from "./secret-inputs.ts";

/* `tools token`, `tools tokens` and `tools revoke`: a tool has one token for each client, so each can be ended alone. */

export interface TokenOptions {
  /** What happens without it, too. Older versions replaced the tokens by default. */
  readonly add?: boolean;
  readonly replace?: boolean;
  readonly name?: string;
  readonly config?: string;
}

export async function token(tool: string, options: TokenOptions): Promise<void> {
  if (options.add && options.replace) return fail("use --add or --replace, not both", EXIT.usage);
  const { name } = options;
  if (name !== undefined && !/^[A-Za-z0-9][\w.-]{0,39}$/.test(name))
    return fail("--name takes letters, digits, dots, hyphens and underscores", EXIT.usage);
  const paths = commandPaths(options.config);
  const made = await issueToken(paths, tool, {
    name: name ?? tool,
    isNameFixed: name !== undefined,
    mode: options.replace ? "replace" : "add",
  });
  // Alone on stdout, so that it can be piped.
  if (made !== null) stdio().stdout.write(`${made}\n`);
}

/** A token for one more client of a tool. null: there is none, and the reason was printed. */
export function addToken(paths: Paths, tool: string, client: string): Promise<string | null> {
  return issueToken(paths, tool, { name: client, isNameFixed: false, mode: "add" });
}

interface Issue {
  readonly name: string;
  /** False: the name gets a number if it is taken. */
  readonly isNameFixed: boolean;
  readonly mode: "replace" | "add";
}

/** Returns once the daemon accepts the token: a script may use it at once. */
async function issueToken(paths: Paths, tool: string, issue: Issue): Promise<string | null> {
  const { mode, isNameFixed } = issue;
  const before = await activeRevision(paths);
  const made = makeToken();
  let { name } = issue;
  let count = 0;
  const edited = await editConfig(paths, (text) => {
    if (mode === "add" && !isNameFixed) name = freeTokenName(text, tool, issue.name);
    const added = setToken(text, tool, tokenEntry(name, made), mode);
    if (added.ok) count = countTokens(added.text, tool);
    return added;
  });
  if (edited === null) return null;
  const others = mode === "add" ? "its other tokens keep working" : "all its other tokens have ended";
  notice(
    `token ${name} of ${tool}: shown only now; ${isOwners(paths) ? paths.overrides : paths.config} holds its hash, and ${others}`,
  );
  // The daemon may still be reading an edit from before.
  const isRead = (status: ToolStatus | undefined) => status?.tokens === count;
  const effect = await waitUntilActive(
    paths,
    tool,
    (status, revision) => revision > before && isRead(status),
  );
  if (effect.state === "not in force") notice({ ...effect, problem: `but ${effect.problem}` });
  return made;
}

interface MadeToken {
  readonly entry: NewToken;
  /** To be shown once; null: the person has it already. */
  readonly made: string | null;
}

export function newToken(name: string): MadeToken & { readonly made: string } {
  const made = makeToken();
  return { entry: tokenEntry(name, made), made };
}

/** A new token, or with --token-stdin the person's own. null: it cannot be used, and the reason was printed. */
export async function tokenFor(tool: string, isGiven: boolean, inputs: Inputs): Promise<MadeToken | null> {
  if (!isGiven) return newToken(tool);
  notice("a token that keybearer makes is safer: one that you bring may be known elsewhere");
  const { prompter } = inputs;
  const text = prompter === null ? inputs.token : await prompter.secret("token (not shown):");
  if (text === null) return canceled();
  const token = text.trim();
  // Requests are checked for the checksum, too, so a token without one would never be accepted.
  switch (tokenShape(token)) {
    case "complete":
      return { entry: tokenEntry(tool, token), made: null };
    case "incomplete":
      return refused("the token is incomplete, or keybearer did not make it: its checksum is wrong");
    case "other":
      return refused("a token begins with kb_ and ends in a checksum: only one that keybearer made works");
  }
}

function refused(problem: string): null {
  return failNull(`${problem}. without --token-stdin you get a new one\nnothing was changed`, EXIT.failed);
}

export async function tokens(
  tool: string,
  options: { readonly json?: boolean; readonly config?: string },
): Promise<void> {
  const paths = commandPaths(options.config);
  const config = await readConfig(paths);
  const found = config === null ? null : findTool(config, tool);
  if (found === null) return;
  const uses = readTokenUses(paths.tokenUses);
  const rows = found.tokens.map(({ name, hash, created }) => ({
    name,
    created,
    last_use: uses[hash] ?? null,
  }));
  if (options.json) printJson(rows);
  else if (rows.length === 0) printText({ problem: `${tool} has no token`, next: advice.newToken(tool) });
  else {
    const now = systemClock.now();
    const { text } = columnsFor(rows);
    const columns = [
      text("name", 0, ({ name }) => name),
      text("created", 2, ({ created }) => created ?? "-"),
      text("last use", 1, ({ last_use }) => (last_use === null ? "-" : `${ago(now - last_use)} ago`)),
    ];
    print(...renderTable(columns, stdoutScreen().width).split("\n"));
  }
}

export async function revoke(
  tool: string,
  name: string,
  options: { readonly config?: string; readonly yes?: boolean },
): Promise<void> {
  const paths = commandPaths(options.config);
  if (!canConfirm(withConfig(advice.revoke(tool, name), paths), options)) return;
  const before = await activeRevision(paths);
  let isLast = false;
  const edited = await editConfig(
    paths,
    (text) => {
      const removed = removeToken(text, tool, name);
      isLast = removed.ok && removed.isLast;
      return removed;
    },
    options.yes ? undefined : () => agrees(`revoke token ${name} of ${tool}?`, "no", "revoked"),
  );
  if (edited === null) return;
  printText(`token ${name} of ${tool} has ended`);
  if (isLast) printText({ problem: `${tool} has no token now`, next: advice.newToken(tool) });
  const effect = await waitUntilActive(paths, tool, (_tool, revision) => revision > before);
  if (effect.state === "not in force") fail({ ...effect, problem: `but ${effect.problem}` }, EXIT.failed);
}
