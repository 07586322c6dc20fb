import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { RecordsPage, ShownRecord } from "../../api.ts";
import { useFrame } from "../frame.tsx";
import { Failed, isAbort, wordsOf } from "../live/failed.ts";
import { type Listed, listAgain, NOTHING_LISTED, withPage, withRecord } from "./record-pages.ts";

/** As many as the daemon gives at once. */
const PAGE = 500;

export interface RecordSource extends Listed {
  readonly busy: boolean;
  readonly failure: string | null;
  /** Fetches the next page, unless one is on its way or there is none. */
  readonly more: () => void;
  readonly again: () => void;
}

/** The records of a query, page by page, and new ones while the page is open. */
export function useRecords(query: string, belongs: (record: ShownRecord) => boolean): RecordSource {
  const { live } = useFrame();
  const [listed, setListed] = useState<Listed>(NOTHING_LISTED);
  const [round, setRound] = useState(0);
  const { ask, asking, busy, failure } = useAsking(query);
  // For which query, and how many rows.
  const answered = useRef({ query: "", rows: 0 });
  answered.current.rows = listed.records.length;
  // Records that arrive while the list is fetched again. The response may be older.
  const came = useRef<ShownRecord[]>([]);

  useEffect(() => {
    came.current = [];
    const reach = answered.current.query === query ? answered.current.rows : 0;
    // What was listed stays to be seen until the answer is there.
    void ask(async (fetchPage) => {
      const fresh = await listAgain(fetchPage, reach);
      return () => {
        answered.current.query = query;
        setListed(came.current.reduce(withRecord, fresh));
      };
    });
    return () => asking.current?.abort();
  }, [ask, asking, query, round]);

  const again = useCallback(() => setRound((before) => before + 1), []);
  useEffect(() => live.onMissed(again), [live, again]);

  const fits = useRef(belongs);
  fits.current = belongs;
  useEffect(
    () =>
      live.onRecord((record) => {
        if (!fits.current(record)) return;
        if (asking.current !== null) came.current.push(record);
        setListed((listed) => withRecord(listed, record));
      }),
    [live, asking],
  );

  const { next } = listed;
  const more = useCallback(() => {
    // A page that failed is asked for by a person, not by every move of the scroll bar.
    if (next === null || asking.current !== null || failure !== null) return;
    void ask(async (fetchPage) => {
      const page = await fetchPage(next);
      return () => setListed((listed) => withPage(listed, page));
    });
  }, [next, failure, ask, asking]);
  return { ...listed, busy, failure, more, again };
}

type FetchPage = (before: string | null) => Promise<RecordsPage>;

/** One request at a time. Its result is dropped if the query changed meanwhile. */
function useAsking(query: string) {
  const { client, live, t } = useFrame();
  const [busy, setBusy] = useState(true);
  const [failure, setFailure] = useState<string | null>(null);
  const asking = useRef<AbortController | null>(null);
  const ask = useCallback(
    async (work: (fetchPage: FetchPage) => Promise<() => void>) => {
      const own = new AbortController();
      asking.current = own;
      setBusy(true);
      try {
        const take = await work((before) => client.get("/api/records", pageQuery(query, before), own.signal));
        if (own.signal.aborted) return;
        take();
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
  return { ask, asking, busy, failure };
}

function pageQuery(query: string, before: string | null): URLSearchParams {
  const asked = new URLSearchParams(query);
  asked.set("limit", String(PAGE));
  if (before !== null) asked.set("before", before);
  return asked;
}
