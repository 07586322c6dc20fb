import { chooseLanguage, type Language } from "./messages/messages.ts";
import { stored } from "./stored.ts";

/** What the reader chose for this browser. auto: as the system has it. */
export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export const LANGUAGES: readonly (readonly [Language, string])[] = [
  ["en", "English"],
  ["zh-CN", "简体中文"],
];

const preference = (what: "theme" | "language") => stored(() => localStorage, `keybearer.${what}`);

export function readTheme(): Theme {
  const chosen = preference("theme").read();
  return THEMES.find((theme) => theme === chosen) ?? "auto";
}

/** The style sheet has both colors of everything. */
export function applyTheme(): void {
  const theme = readTheme();
  document.documentElement.style.colorScheme = theme === "auto" ? "light dark" : theme;
}

export function readLanguage(): Language {
  const chosen = preference("language").read();
  return chooseLanguage(chosen === null ? navigator.languages : [chosen]);
}

export function prefer(what: "theme" | "language", value: Theme | Language): void {
  preference(what).write(value);
  location.reload();
}
