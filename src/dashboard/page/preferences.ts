import { chooseLanguage, type Language } from "./messages/messages.ts";
import { readStored, writeStored } from "./stored.ts";

/** What the reader chose for this browser. auto: as the system has it. */
export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export const LANGUAGES: readonly (readonly [Language, string])[] = [
  ["en", "English"],
  ["zh-CN", "简体中文"],
];

const storage = () => localStorage;

export function readTheme(): Theme {
  const stored = readStored(storage, "keybearer.theme");
  return THEMES.find((theme) => theme === stored) ?? "auto";
}

/** The style sheet has both colors of everything. */
export function applyTheme(): void {
  const theme = readTheme();
  document.documentElement.style.colorScheme = theme === "auto" ? "light dark" : theme;
}

export function readLanguage(): Language {
  const stored = readStored(storage, "keybearer.language");
  return chooseLanguage(stored === null ? navigator.languages : [stored]);
}

export function prefer(what: "theme" | "language", value: Theme | Language): void {
  writeStored(storage, `keybearer.${what}`, value);
  location.reload();
}
