import { chooseLanguage, type Language } from "./messages/messages.ts";

/** What the reader chose for this browser. auto: as the system has it. */
export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const THEME = "keybearer.theme";
const LANGUAGE = "keybearer.language";

export function readTheme(): Theme {
  const stored = read(THEME);
  return THEMES.find((theme) => theme === stored) ?? "auto";
}

/** Colors the page, now and whenever the system changes. */
export function applyTheme(): void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const chosen = readTheme();
    const system = dark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = chosen === "auto" ? system : chosen;
  };
  dark.addEventListener("change", apply);
  addEventListener("storage", apply);
  apply();
}

export function chooseTheme(theme: Theme): void {
  write(THEME, theme);
  location.reload();
}

export function readLanguage(): Language {
  const stored = read(LANGUAGE);
  return chooseLanguage(stored === null ? navigator.languages : [stored]);
}

export function chooseLanguageFor(language: Language): void {
  write(LANGUAGE, language);
  location.reload();
}

function read(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    // Storage is switched off.
    return null;
  }
}

function write(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Storage is switched off: the choice holds until the reload.
  }
}
