import { timingSafeEqual } from "node:crypto";
import type { Tool } from "../config/shape.ts";
import type { KnownToken, Snapshot } from "../config/snapshot.ts";
import { type Refusal, refuse } from "../core/refusal.ts";
import { looksLikeCredential } from "../core/secret.ts";
import type { Credential } from "./credential.ts";
import { hashToken, hasTokenForm, tokenShape } from "./token.ts";

export type Identified =
  | {
      readonly ok: true;
      readonly tool: Tool;
      /** The program that owns the connection, where it was looked for. */
      readonly program: string | null;
    }
  | {
      readonly ok: false;
      readonly refusal: Refusal;
      /** Nothing that could be a token or a key was shown: at most a placeholder. */
      readonly anonymous: boolean;
    };

/** Who is calling, by the token it shows. */
export function identify(snapshot: Snapshot, credentials: readonly Credential[]): Identified {
  const first = credentials[0];
  if (first === undefined) {
    return no(
      "token-missing",
      "the request carries no token. make one for this tool: keybearer tools token <tool>",
      true,
    );
  }
  const other =
    credentials.length === 1 ? undefined : credentials.find((credential) => credential.value !== first.value);
  if (other !== undefined) {
    const odd = tokenShape(other.value) === "other" ? other : first;
    return no(
      "foreign-key",
      `the request carries two different credentials, and the one in ${odd.slot} is not the token. ` +
        `take it out of the tool's settings or environment`,
    );
  }
  // Nearly always it is a token that is known, and then nothing else has to be worked out.
  const hash = hasTokenForm(first.value) ? hashToken(first.value) : null;
  const known = hash === null ? null : snapshot.tokenByHash(hash);
  if (hash !== null && known?.complete) return byToken(known, hash, first);
  switch (tokenShape(first.value)) {
    case "incomplete":
      return no(
        "token-incomplete",
        `the token in ${first.slot} is incomplete. copy it again, or make a new one: keybearer tools token <tool>`,
      );
    case "other":
      return looksLikeCredential(first.value) ? foreign(first) : unknown(first, true);
    case "complete":
      if (hash === null || known === null) return unknown(first);
      known.complete = true;
      return byToken(known, hash, first);
  }
}

function byToken(known: KnownToken, hash: string, credential: Credential): Identified {
  const { tool } = known;
  // The look-up is by digest, of which a caller cannot choose a prefix; this keeps the last word constant-time.
  if (!timingSafeEqual(known.hash, Buffer.from(hash))) return unknown(credential);
  if (credential.slot === "the address" && !tool.tokenInUrl) {
    return no(
      "token-unknown",
      `tool ${tool.name} does not take its token from the address. ` +
        `send it in a header, or set tools.${tool.name}.token_in_url: true`,
    );
  }
  return { ok: true, tool, program: null };
}

function foreign(credential: Credential): Identified {
  return no(
    "foreign-key",
    `the request carries a real key in ${credential.slot}, not a token of keybearer's. it was not forwarded. ` +
      `put the tool's token there instead: keybearer tools token <tool>`,
  );
}

function unknown(credential: Credential, anonymous = false): Identified {
  const message = `no tool has the token in ${credential.slot}. make a new one: keybearer tools token <tool>`;
  return no("token-unknown", message, anonymous);
}

function no(code: Refusal["code"], message: string, anonymous = false): Identified {
  return { ok: false, refusal: refuse(code, message), anonymous };
}
