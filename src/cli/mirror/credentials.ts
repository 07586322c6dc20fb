import type { ConsoleLogin } from "../../config/schema.ts";
import type { LoginRequest } from "../../mirror/login.ts";
import type { MirrorReport } from "../../mirror/report/shape.ts";
import type { Prompter } from "../ui/prompts.ts";

export interface LoginOptions {
  readonly refreshToken?: boolean;
  /** One of several accounts. */
  readonly account?: string;
}

export type Given = { readonly credentials: LoginRequest } | { readonly fault: string };

/** Why nobody can log in there, or not in this way; null: they can. */
export function cannotLogIn(found: MirrorReport, options: LoginOptions): string | null {
  const { gateway, kind, why, next } = found;
  if (kind === null)
    return (
      `what kind of console ${gateway} has is not known yet${why === null ? "" : ` (${why})`} → ` +
      `${next ?? `write kind: below gateways.${gateway}.console in config.yaml`}`
    );
  if (kind === "litellm" || kind === "openrouter")
    return `${gateway}: a console of kind ${kind} cannot be mirrored yet`;
  if (options.refreshToken && kind !== "sub2api")
    return `--refresh-token is for sub2api, and ${gateway} has ${kind} → keybearer mirror login ${gateway}`;
  return null;
}

/** Asks for what this kind of console wants, except for what config.yaml says already. */
export async function credentialsFor(
  { gateway, kind }: MirrorReport,
  options: LoginOptions,
  known: Partial<ConsoleLogin>,
  answers: Prompter,
): Promise<Given> {
  if (options.refreshToken) {
    const token = trimmed(await answers.secret("refresh token: "));
    return token === null ? missing("refresh token") : { credentials: { refresh_token: token } };
  }
  if (kind === "sub2api") {
    const email = known.email ?? trimmed(await answers.text("email: "));
    if (email === null) return missing("email, password");
    // Not trimmed: a password may begin or end with a space.
    const password = await answers.secret(`password of ${email}: `);
    return password === null || password === "" ? missing("password") : { credentials: { email, password } };
  }
  const token = trimmed(await answers.secret("access token: "));
  if (token === null) return missing("access token");
  if (kind === "one-api") return { credentials: { access_token: token, user: null } };
  const user = known.user ?? trimmed(await answers.text("user id, a number: "));
  if (user === null) return missing("access token, user id");
  if (!/^\d{1,18}$/.test(user))
    return {
      fault: `the user id is a number, as the console's personal settings show it → keybearer mirror login ${gateway}`,
    };
  return { credentials: { access_token: token, user } };
}

/** What was pasted often has a space or a line break around it. */
export function trimmed(text: string | null): string | null {
  const bare = text?.trim() ?? "";
  return bare === "" ? null : bare;
}

function missing(what: string): Given {
  return { fault: `not logged in: nothing was given. wanted, one a line without a terminal: ${what}` };
}
