import { checkHost, checkShape, Headers, type RequestHead } from "../proxy/guard.ts";
import { type Refusal, refuse } from "../refusal.ts";

/**
 * The guard of the data port with one page let in: the dashboard's own. A page of anywhere else, another port of this
 * machine included, gets nothing, whatever token it has; and a name that only leads here (rebinding) is not answered.
 */
export function guardPage(head: RequestHead, hosts: readonly string[]): Refusal | null {
  const headers = new Headers(head.rawHeaders);
  return checkHost(headers, hosts) ?? checkPage(head, headers) ?? checkShape(head, headers);
}

function checkPage(head: RequestHead, headers: Headers): Refusal | null {
  const no = () => refuse("browser-request", "requests from other pages are not served");
  const [host = ""] = headers.get("host") ?? [];
  const origin = headers.get("origin");
  if (origin !== undefined && (origin.length !== 1 || origin[0] !== `http://${host.toLowerCase()}`))
    return no();
  const site = headers.get("sec-fetch-site");
  if (site === undefined || isNavigation(head, headers)) return null;
  return site.length === 1 && (site[0] === "same-origin" || site[0] === "none") ? null : no();
}

/**
 * Following a link to the page, from wherever it may be: it is the same for everybody and holds nothing, and cannot be
 * framed. What it fetches then is its own.
 */
function isNavigation({ method, target }: RequestHead, headers: Headers): boolean {
  const is = (name: string, value: string) => headers.get(name)?.join() === value;
  return (
    method === "GET" &&
    target === "/" &&
    is("sec-fetch-mode", "navigate") &&
    is("sec-fetch-dest", "document") &&
    !headers.has("origin")
  );
}
