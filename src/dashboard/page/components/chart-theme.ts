import { useEffect, useState } from "preact/hooks";

/** A canvas keeps the colours it was drawn with, so a chart must know when the theme changes. */
export function useTheme(): "light" | "dark" {
  const [dark, setDark] = useState(() => isDark().matches);
  useEffect(() => {
    const query = isDark();
    const read = () => setDark(query.matches);
    query.addEventListener("change", read);
    return () => query.removeEventListener("change", read);
  }, []);
  return dark ? "dark" : "light";
}

function isDark(): MediaQueryList {
  return matchMedia("(prefers-color-scheme: dark)");
}

export function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => isNarrow().matches);
  useEffect(() => {
    const query = isNarrow();
    const read = () => setNarrow(query.matches);
    query.addEventListener("change", read);
    return () => query.removeEventListener("change", read);
  }, []);
  return narrow;
}

function isNarrow(): MediaQueryList {
  return matchMedia("(max-width: 640px)");
}

/** A colour as the style sheet has it now. */
export function colourOf(variable: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}
