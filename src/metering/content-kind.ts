/** What a content type says that a body is. Gateways lie about it, so that it decides only where the body does not. */
export type ContentKind =
  | "json"
  | "events"
  /** Never text, whatever byte it begins with. */
  | "media"
  | "page"
  | "other";

export function contentKind(contentType: string): ContentKind {
  // Nearly every answer is one of these.
  if (contentType.startsWith("application/json")) return "json";
  if (contentType === "text/event-stream" || EVENT_STREAM.test(contentType)) return "events";
  if (MEDIA.test(contentType)) return "media";
  return PAGE.test(contentType) ? "page" : "other";
}

const EVENT_STREAM = /^\s*text\/event-stream\b/i;
const MEDIA = /^\s*(?:image|audio|video|font)\//i;
const PAGE = /^\s*text\/html/i;
