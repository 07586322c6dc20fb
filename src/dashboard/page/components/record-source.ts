import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { ShownRecord } from "../../api.ts";
import { useFrame } from "../frame.tsx";
import { Failed, isAbort, wordsOf } from "../live/failed.ts";
import { type Listed, NOTHING_LISTED, withPage, withRecord } from "./record-pages.ts";

/** As many as the daemon gives at once. */
const PAGE = 500;

export interface RecordSource extends Listed {
  readonly busy: boolean;
  readonly failure: string | null;
  /** Fetches the next page, unless one is on its way or there is none. */
  readonly more: () => void;
  readonly again: () => void;
}

/** The records of a question, page by page, and those that come while it is looked at. */
export function useRecords(query: string, belongs: (record: ShownRecord) => boolean): RecordSource {
  const { client, live, t } = useFrame();
  const [listed, setListed] = useState<Listed>(NOTHING_LISTED);
  const [busy, setBusy] = useState(true);
  const [failure, setFailure] = useState<string | null>(null);
  const [round, setRound] = useState(0);
  const asking = useRef<AbortController | null>(null);

  const fetchPage = useCallback(
    async (before: string | null) => {
      const own = new AbortController();
      asking.current = own;
      setBusy(true);
      const asked = new URLSearchParams(query);
      asked.set("limit", String(PAGE));
      if (before !== null) asked.set("before", before);
      try {
        const page = await client.get("/api/records", asked, own.signal);
        if (own.signal.aborted) return;
        setListed((listed) => withPage(before === null ? NOTHING_LISTED : listed, page));
        setFailure(null);
      } catch (error) {
        if (own.signal.aborted || isAbort(error)) return;
        if (error instanceof Failed && error.kind === "session") live.sessionOver();
        setFailure(error instanceof Failed && error.kind === "gone" ? t("frame.gone.short") : wordsOf(error));
      }
      asking.current = null;
      setBusy(false);
    },
    [client, live, query, t],
  );

  useEffect(() => {
    // What was listed stays to be seen until the answer is there.
    void fetchPage(null);
    return () => asking.current?.abort();
  }, [fetchPage, round]);

  const fits = useRef(belongs);
  fits.current = belongs;
  useEffect(
    () =>
      live.onRecord((record) => {
        if (fits.current(record)) setListed((listed) => withRecord(listed, record));
      }),
    [live],
  );

  const { next } = listed;
  const more = useCallback(() => {
    // A page that failed is asked for by a person, not by every move of the scroll bar.
    if (next !== null && asking.current === null && failure === null) void fetchPage(next);
  }, [next, failure, fetchPage]);
  return { ...listed, busy, failure, more, again: () => setRound((before) => before + 1) };
}
