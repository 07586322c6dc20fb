import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useFrame, useProblem } from "./frame.tsx";
import type { Answers } from "./live/client.ts";

export interface Answer<T> {
  /** The last that came; while it is asked again too. */
  readonly value: T | null;
  /** Why there is none, or no newer one. */
  readonly problem: string | null;
  readonly busy: boolean;
  again(): void;
}

interface Asked {
  readonly query?: URLSearchParams;
  /**
   * Another value when there is something new: it is asked once the last answer is here. It comes from the state, which is
   * followed only while the page is visible.
   */
  readonly fresh?: string | number | undefined;
}

/**
 * Asks the daemon when it is shown, when what is asked changes, and after a gap in the event stream. Aborts what is no
 * longer needed.
 * @param path null: nothing is asked
 */
export function useAnswer<Path extends keyof Answers>(
  path: Path | null,
  { query, fresh }: Asked = {},
): Answer<Answers[Path]> {
  const { live, client } = useFrame();
  const problemOf = useProblem();
  const [round, setRound] = useState(0);
  const [seen, setSeen] = useState(fresh);
  const [answer, setAnswer] = useState<Omit<Answer<Answers[Path]>, "again">>(NOTHING);
  const { busy } = answer;
  const asked = String(query ?? "");
  const again = () => setRound((before) => before + 1);
  useEffect(() => live.onMissed(again), [live]);
  useEffect(() => {
    // Not while one is on its way: to ask again gives that one up, and a slow answer would never come.
    if (!busy) setSeen(fresh);
  }, [fresh, busy]);
  useEffect(() => {
    if (path === null) return setAnswer(NOTHING);
    const controller = new AbortController();
    const { signal } = controller;
    const ask = async () => {
      setAnswer((before) => ({ ...before, busy: true }));
      try {
        const value = await client.get(path, asked, signal);
        if (!signal.aborted) setAnswer({ value, problem: null, busy: false });
      } catch (error) {
        if (!signal.aborted) setAnswer(({ value }) => ({ value, problem: problemOf(error), busy: false }));
      }
    };
    void ask();
    return () => controller.abort();
  }, [path, asked, round, seen]);
  return { ...answer, again };
}

const NOTHING = { value: null, problem: null, busy: true };

interface AnsweredProps<T> {
  readonly asked: Answer<T>;
  readonly children: (value: T) => ComponentChildren;
}

/** What was answered. Why there is no answer, or no newer one, comes with a button that asks again. */
export function Answered<T>({ asked: { value, busy, problem, again }, children }: AnsweredProps<T>) {
  const { t } = useFrame();
  if (value === null && busy) return <p class="empty">{t("frame.loading")}</p>;
  return (
    <>
      {problem === null ? null : (
        <p class="box notice row" role="alert">
          <span>{t("frame.failed", { problem })}</span>
          <button type="button" onClick={again}>
            {t("frame.again")}
          </button>
        </p>
      )}
      {value === null ? null : children(value)}
    </>
  );
}
