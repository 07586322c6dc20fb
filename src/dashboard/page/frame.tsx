import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Client } from "./live/client.ts";
import type { Live, LiveState } from "./live/live.ts";
import type { Language, Translate } from "./messages/messages.ts";

/** What every part of the page may use. */
export interface Frame {
  readonly t: Translate;
  readonly language: Language;
  readonly client: Client;
  readonly live: Live;
  /** Milliseconds UTC. */
  readonly clock: () => number;
}

/** What a page gets beside the frame. */
export interface PageProps {
  readonly state: LiveState;
  readonly query: URLSearchParams;
  /** replace: adds no entry to the history. */
  readonly setQuery: (query: URLSearchParams, how?: "push" | "replace") => void;
}

export const FrameContext = createContext<Frame | null>(null);

export function useFrame(): Frame {
  const frame = useContext(FrameContext);
  if (frame === null) throw new Error("a part of the page is used outside of it");
  return frame;
}
