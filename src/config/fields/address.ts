import { quoted, type Read, type Reading } from "../text/section.ts";

/** Addresses of gateways, consoles and proxies. A key will be sent to these, so nothing is guessed. */

const ENDPOINTS =
  /\/(?:chat\/completions|completions|responses|messages|embeddings|models|images\/generations|audio\/\w+)\/?$/;
const VERSION = /\/v\d+[a-z0-9]*$/;

export const baseUrl: Read<string> = (text) => {
  const address = plainAddress(text);
  if ("fault" in address) return address;
  const endpoint = ENDPOINTS.exec(address.value);
  if (endpoint) {
    const cut = address.value.slice(0, endpoint.index);
    return { fault: `the base url ends in the endpoint path ${endpoint[0]}`, hint: `cut it off: ${cut}` };
  }
  if (!VERSION.test(address.value)) {
    return { fault: "the base url does not end in its version segment", hint: likelyBase(address.value) };
  }
  return address;
};

/** What gateways put before the version. Any other path is mostly a page of the console, copied from the browser. */
const BEFORE_VERSION =
  /^(?:\/(?:api|openai|anthropic|claude|gemini|proxy|gateway|llm|ai|inference|compatible-mode))*$/;

function likelyBase(address: string): string {
  const { origin, pathname } = new URL(address);
  if (BEFORE_VERSION.test(pathname.replace(/\/$/, ""))) return `probably: ${address}/v1`;
  return `copy the base url from the console's "use key" page; probably: ${origin}/v1`;
}

export const messagesUrl: Read<string> = (text) => {
  const address = plainAddress(text);
  if ("fault" in address) return address;
  const extra = /(?:\/v1)?(?:\/messages)?$/.exec(address.value)?.[0] ?? "";
  if (extra === "") return address;
  const cut = address.value.slice(0, -extra.length);
  return {
    fault: `the messages address ends in ${extra}, which is added for every request`,
    hint: `cut it off: ${cut}`,
  };
};

export const consoleUrl: Read<string> = plainAddress;

export const proxyUrl: Read<string> = (text) => {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== "http:" || url.pathname !== "/" || /[?#@]/.test(text)) {
    return {
      fault: `${quoted(text)} is not an outbound proxy`,
      hint: "write http://host:port, without a password",
    };
  }
  return { value: url.origin };
};

/** base_url less its version segment: where the messages style is served unless said otherwise. */
export function withoutVersion(address: string): string {
  return address.replace(VERSION, "");
}

function plainAddress(text: string): Reading<string> {
  const url = /^https?:\/\//i.test(text) && URL.canParse(text) ? new URL(text) : null;
  if (url === null)
    return { fault: `${quoted(text)} is not an address`, hint: "such as https://gateway.example.com/v1" };
  // An @ before the path: an empty user name is one, too.
  if (/^https?:[\\/]*[^\\/?#]*@/i.test(text)) {
    return {
      fault: "there is a user name or password in the address",
      hint: "take it out; keys have a setting of their own",
    };
  }
  if (/[?#]/.test(text))
    return { fault: "there is a query or fragment in the address", hint: "cut it off at the ? or #" };
  if (/\\|%2e|%2f|%5c|\/\.\.?(?:\/|$)|[^\x21-\x7e]/i.test(text)) {
    return {
      fault: "there is a dot segment, a backslash or a hidden character in the address",
      hint: "write it out plainly",
    };
  }
  if (url.hostname.endsWith(".")) return { fault: "the host name ends in a dot", hint: "take the dot out" };
  if (url.protocol === "http:" && !isLoopback(url.hostname)) {
    return {
      fault: "http would send the key in the clear",
      hint: `write https://${url.host}${url.pathname}`,
    };
  }
  return { value: url.origin + url.pathname.replace(/\/+$/, "") };
}

/** As URL.hostname writes it. */
export function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(hostname);
}
