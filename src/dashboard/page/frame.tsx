import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import type { Action } from "../actions/actions.ts";
import type { Now } from "../api.ts";
import type { ActionForm } from "./form.ts";
import { type Client, Failed, messageOf } from "./live/client.ts";
import type { Live, LiveState } from "./live/live.ts";
import { findMessage, type Language, type MessageId, type Translate } from "./messages/messages.ts";

/** What the page is made with. */
export interface Parts {
  readonly t: Translate;
  readonly language: Language;
  readonly client: Client;
  readonly live: Live;
  /** Milliseconds UTC. */
  readonly clock: () => number;
}

/** What every part of the page may use. */
export interface Frame extends Parts {
  /** Asks what is still to be asked, shows what the action would do, and does it once the person agrees. */
  readonly act: (asked: Action | ActionForm) => void;
}

/** There is something to show: the last that was heard. */
export type ShownState = LiveState & { readonly now: Now };

/** What a page gets beside the frame. */
export interface PageProps {
  readonly state: ShownState;
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

/** The time, for what grows old while one looks at it. */
export function useTime(everyMs = 10_000): number {
  const { clock } = useFrame();
  const [time, setTime] = useState(clock);
  useEffect(() => {
    const timer = setInterval(() => setTime(clock()), everyMs);
    return () => clearInterval(timer);
  }, [clock, everyMs]);
  return time;
}

/** Returns the problem as the page shows it. A session that is over ends for the whole page. */
export function useProblem(): (error: unknown) => string {
  const { live, t } = useFrame();
  return (error) => {
    if (!(error instanceof Failed)) return messageOf(error);
    if (error.kind === "session") live.sessionOver();
    if (error.kind === "gone") return t("frame.link.gone");
    // What has no code, such as what is wrong with a setting, has the daemon's words.
    const own = error.code === null ? null : findMessage(`problem.${error.code}` satisfies MessageId);
    return own === null ? error.message : t(own);
  };
}
