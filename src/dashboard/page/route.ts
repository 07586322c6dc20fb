export const PAGES = ["overview", "usage", "tools", "bill", "events"] as const;
export type PageName = (typeof PAGES)[number];

/** Where in the page one is: #/usage?by=model. In the fragment, so that reload, back and a bookmark work. */
export interface Route {
  readonly page: PageName;
  readonly query: URLSearchParams;
}

export function routeOf(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { page: PAGES.find((page) => page === path) ?? "overview", query: new URLSearchParams(query) };
}

/** The one-time code of an address's fragment: #code=… */
export function codeOf(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get("code") || null;
}

export function hrefOf(page: PageName, query?: URLSearchParams): string {
  const text = query?.toString() ?? "";
  return text === "" ? `#/${page}` : `#/${page}?${text}`;
}

export function hrefOfTool(tool: string): string {
  return hrefOf("tools", new URLSearchParams({ tool }));
}
