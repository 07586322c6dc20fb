import { type Snippet, settingsFor, type Target } from "../../clients/snippets.ts";
import type { Client, Shell } from "../../clients/table.ts";

/** none: nothing was pasted. */
export type PastedToken = "none" | "complete" | "incomplete" | "other";

/** By its shape alone: kb_, 43 characters and a checksum of six. */
export function pastedToken(text: string): PastedToken {
  if (text === "") return "none";
  if (!text.startsWith("kb_")) return "other";
  return /^kb_[A-Za-z0-9_-]{49}$/.test(text) ? "complete" : "incomplete";
}

/** Of what is written for each shell, only what is for this one. */
export function snippetsFor(client: Client, target: Target, shell: Shell): readonly Snippet[] {
  return settingsFor(client, target).filter(({ kind, format }) => kind !== "env" || format === shell);
}

export function shellOf(platform: string): Shell {
  return /win/i.test(platform) && !/darwin/i.test(platform) ? "powershell" : "sh";
}
