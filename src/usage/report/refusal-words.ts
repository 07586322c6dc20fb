import type { RefusalCode } from "../../refusal.ts";

/** Each refusal in a few words, for whoever looks back at it. What to do was said when it happened. */
const WORDS: Readonly<Record<RefusalCode, string>> = {
  "token-missing": "it showed no token",
  "token-incomplete": "its token was copied incompletely",
  "token-unknown": "no tool has the token it showed",
  "foreign-key": "it showed a real key, or a second credential, where the token belongs",
  "tool-disabled": "the tool is disabled in config.yaml",
  "tool-expired": "the tool's time has expired",
  "key-unavailable": "the tool's key could not be had",
  "needs-trust": "an edit sends the key somewhere new, and nobody has said yes to it",
  "group-disabled": "the tool's group is disabled",
  "model-not-in-group": "the tool's group does not have this model",
  "price-unknown": "a money limit needs a price, and none is known for this model",
  "quota-exhausted": "the tool's total is spent",
  "rate-limited": "the tool's limit of requests was reached",
  "tokens-limited": "the tool's limit of tokens was reached",
  "spend-limited": "the tool's limit of money was reached",
  "too-many-at-once": "the tool had as many requests under way as it may",
  "wrong-base-url": "the tool's base URL is wrong",
  "host-not-allowed": "it was sent to another name than localhost",
  "browser-request": "it came from a web page",
  "other-user": "it came from another user of this machine",
  "bad-request": "it was no proper request",
  "headers-too-large": "its headers were too large",
  "body-too-large": "its body was too large",
  loop: "it had passed through keybearer before",
  "websockets-off": "it asked for a WebSocket, which is off for this gateway",
  "gateway-unreachable": "the gateway could not be reached",
  "gateway-timeout": "the gateway did not answer in time",
  "gateway-broken": "the gateway's answer was broken",
  "log-unavailable": "the usage log could not be written",
  overloaded: "too many large requests were in memory at once",
  "shutting-down": "keybearer was stopping",
};

export function refusalInWords(code: string | null): string {
  return WORDS[code as RefusalCode] ?? code ?? "no reason was noted";
}
