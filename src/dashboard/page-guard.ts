import { type Refusal, refuse } from "../core/refusal.ts";
import { checkHost, checkShape, type RequestHead } from "../proxy/guard.ts";
import { headerValues } from "../proxy/headers.ts";

/**
 * The guard of the data port with one page let in: the dashboard's own. A page of anywhere else, another port of this
 * machine included, gets nothing, whatever token it has; and a name that only leads here (rebinding) is not answered.
 */
export function guardPage(head: RequestHead, hosts: readonly string[]): Refusal | null {
  return checkHost(head.rawHeaders, hosts) ?? checkPage(head) ?? checkShape(head);
}

function checkPage(head: RequestHead): Refusal | null {
  const no = () => refuse("browser-request", "requests from other pages are not served");
  const { rawHeaders } = head;
  const [host = ""] = headerValues(rawHeaders, "host");
  const origins = headerValues(rawHeaders, "origin");
  if (origins.length > 1 || (origins.length === 1 && origins[0] !== `http://${host.toLowerCase()}`))
    return no();
  const site = headerValues(rawHeaders, "sec-fetch-site");
  if (site.length === 0 || isNavigation(head)) return null;
  return site.length === 1 && (site[0] === "same-origin" || site[0] === "none") ? null : no();
}

/**
 * Following a link to the page, from wherever it may be: it is the same for everybody and holds nothing, and cannot be
 * framed. What it fetches then is its own.
 */
function isNavigation({ method, target, rawHeaders }: RequestHead): boolean {
  const is = (name: string, value: string) => headerValues(rawHeaders, name).join() === value;
  return (
    method === "GET" &&
    target === "/" &&
    is("sec-fetch-mode", "navigate") &&
    is("sec-fetch-dest", "document") &&
    headerValues(rawHeaders, "origin").length === 0
  );
}
