import type { Database } from "libsql";
import { ALL_TIME } from "./calendar.ts";
import { type ChartQuestion, readChart, readToday } from "./chart.ts";
import { readFirstBytes } from "./gateways.ts";
import {
  attemptsAt,
  type CsvCursor,
  type Cursor,
  csvPage,
  type Filter,
  lastRefused,
  readPage,
  recordById,
  type Selection,
} from "./records.ts";
import { countedSessions, type SessionsQuery } from "./sessions.ts";
import { compareToday } from "./today.ts";

/*
 * What pages ask of the index. It is answered in the index's thread, so what goes there and back is data alone: the thread
 * gets a copy.
 */

/** No names: any. */
const EVERYTHING: Filter = {
  period: ALL_TIME,
  tools: [],
  models: [],
  machines: [],
  projects: [],
  sessions: [],
};

const ANSWERS = {
  chart: (db: Database, question: ChartQuestion, now: number) => readChart(db, question, now),
  today: (db: Database, now: number) => readToday(db, now),
  comparison: (db: Database, now: number) => compareToday(db, EVERYTHING, now),
  firstBytes: (db: Database, now: number) => readFirstBytes(db, now),
  sessions: (db: Database, query: SessionsQuery) => countedSessions(db, query),
  page: (db: Database, selection: Selection, cursor: Cursor, limit: number) =>
    readPage(db, selection, cursor, limit),
  record: (db: Database, id: string) => {
    const record = recordById(db, id);
    return record === null ? null : { record, attempts: attemptsAt(db, record) };
  },
  refused: (db: Database, max: number) => lastRefused(db, max),
  csv: (db: Database, selection: Selection, cursor: CsvCursor | null) => csvPage(db, selection, cursor),
};

export type QuestionName = keyof typeof ANSWERS;

/** The questions, as functions of what is to be known to answer them. */
export type Questions = {
  readonly [Name in QuestionName]: (typeof ANSWERS)[Name] extends (
    db: Database,
    ...values: infer Values
  ) => infer Answer
    ? (...values: Values) => Answer
    : never;
};

export function answerQuestion(db: Database, name: QuestionName, values: readonly unknown[]): unknown {
  const answer = ANSWERS[name] as (db: Database, ...values: readonly unknown[]) => unknown;
  return answer(db, ...values);
}
