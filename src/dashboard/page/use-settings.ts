import type { Client, Shell } from "../../clients/client.ts";
import {
  chooseModels,
  type Fields,
  fieldsFor,
  originWithToken,
  type Snippet,
  settingsFor,
  type Target,
} from "../../clients/snippet.ts";

/** none: nothing was pasted. */
export type PastedToken = "none" | "complete" | "incomplete" | "other";

/** By its shape alone: kb_, 43 characters and a checksum of six. */
export function pastedToken(text: string): PastedToken {
  if (text === "") return "none";
  if (!text.startsWith("kb_")) return "other";
  return /^kb_[A-Za-z0-9_-]{49}$/.test(text) ? "complete" : "incomplete";
}

/** The address that goes into the client's field; with the token in it where the client can send it no other way. */
export function fieldsOf(client: Client, target: Target): Fields {
  return client.id === "url-only"
    ? fieldsFor(client, { ...target, origin: originWithToken(target) })
    : fieldsFor(client, target);
}

/** Of what is written for each shell, only what is for this one. */
export function snippetsFor(client: Client, target: Target, shell: Shell): readonly Snippet[] {
  return settingsFor(client, target).filter(({ kind, format }) => kind !== "env" || format === shell);
}

/** The model that is chosen, and a cheaper one of the same maker: another's may not speak the client's protocol. */
export function modelsFor(
  client: Client,
  listed: readonly string[],
  chosen: string | null,
): { readonly model: string | null; readonly small: string | null } {
  const best = chooseModels(client, listed);
  const model = chosen ?? best.model;
  const maker = (name: string | null) => /^\p{L}+/u.exec(name ?? "")?.[0];
  const kin = maker(model) !== undefined && maker(model) === maker(best.small);
  return { model, small: kin ? best.small : null };
}

export function shellOf(platform: string): Shell {
  return /win/i.test(platform) && !/darwin/i.test(platform) ? "powershell" : "sh";
}
