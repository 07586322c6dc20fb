import { useEffect, useState } from "preact/hooks";
import { useFrame } from "./frame.tsx";
import { Failed, isAbort, wordsOf } from "./live/failed.ts";

export interface Answer<T> {
  /** The last that came; while it is asked again too. */
  readonly value: T | null;
  /** Why there is none, or no newer one; null: nothing went wrong. */
  readonly failure: string | null;
  readonly busy: boolean;
  again(): void;
}

/**
 * Fetches when it is shown, when one of `on` changes, and after a gap in the event stream. Aborts what is no longer needed.
 * @param fresh another number when there is something new; it is asked for once the last answer is here
 */
export function useAnswer<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  on: readonly (string | number | boolean | null)[],
  fresh: number | string = 0,
): Answer<T> {
  const { live, t } = useFrame();
  const [round, setRound] = useState(0);
  const [asked, setAsked] = useState(fresh);
  const [answer, setAnswer] = useState<Omit<Answer<T>, "again">>({ value: null, failure: null, busy: true });
  useEffect(() => live.onMissed(() => setRound((before) => before + 1)), [live]);
  useEffect(() => {
    if (!answer.busy) setAsked(fresh);
  }, [fresh, answer.busy]);
  useEffect(() => {
    const stop = new AbortController();
    setAnswer((before) => ({ ...before, busy: true }));
    ask(stop.signal).then(
      (value) => stop.signal.aborted || setAnswer({ value, failure: null, busy: false }),
      (error: unknown) => {
        if (stop.signal.aborted || isAbort(error)) return;
        if (error instanceof Failed && error.kind === "session") live.sessionOver();
        const gone = error instanceof Failed && error.kind === "gone";
        setAnswer(({ value }) => ({
          value,
          failure: gone ? t("frame.gone.short") : wordsOf(error),
          busy: false,
        }));
      },
    );
    return () => stop.abort();
  }, [...on, round, asked]);
  return { ...answer, again: () => setRound((before) => before + 1) };
}
