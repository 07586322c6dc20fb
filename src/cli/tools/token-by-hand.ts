import { EXIT } from "../../core/errors.ts";
import { hashToken, makeToken, tokenShape } from "../../core/token.ts";
import { canceled, failNull, notice } from "../ui/messages.ts";
import type { Prompter } from "../ui/prompts.ts";

export interface TokenForTool {
  /** As config.yaml keeps it. */
  readonly hash: string;
  /** To be shown once; null: the person has it already. */
  readonly made: string | null;
}

/** A new token, or with --token-stdin one that the person brings. null: told why it cannot be taken. */
export async function tokenFor(
  byHand: boolean,
  given: string | null,
  person: Prompter | null,
): Promise<TokenForTool | null> {
  if (!byHand) return freshToken();
  notice("a token that is made here is better: one that is chosen by hand may be known elsewhere already");
  const text = person === null ? given : await person.secret("token (not shown): ");
  if (text === null) return canceled();
  const token = text.trim();
  // Every request's token is checked for its checksum before it is looked up, so that a cut one is told apart.
  switch (tokenShape(token)) {
    case "complete":
      return { hash: `sha256:${hashToken(token)}`, made: null };
    case "incomplete":
      return refused("the token is incomplete, or was not made by keybearer: its checksum is not right");
    case "other":
      return refused(
        "a token begins with kb_ and ends in a checksum: only one that a keybearer made can be taken",
      );
  }
}

export function freshToken(): { readonly hash: string; readonly made: string } {
  const made = makeToken();
  return { hash: `sha256:${hashToken(made)}`, made };
}

function refused(reason: string): null {
  return failNull(`${reason}. without --token-stdin one is made for you\nnothing was changed`, EXIT.failed);
}
