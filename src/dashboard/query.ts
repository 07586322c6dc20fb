import type { RecordEnd } from "../usage/record.ts";
import type { ChartQuestion } from "../usage/reports/chart.ts";
import { SELECTED_NAMES, type Selection } from "../usage/reports/records.ts";
import { No } from "./answer.ts";
import type { Bin, By } from "./api.ts";

/** What a question's address says. Whatever it should not say is told, and nothing is answered. */

const SELECTING = ["since", "until", ...SELECTED_NAMES];
const ENDS: readonly RecordEnd[] = ["complete", "client-left", "gateway-failed", "refused", "interrupted"];
const BINS: readonly Bin[] = ["hour", "day", "month"];
const BYS: readonly By[] = ["tool", "model", "group", "key"];
/** SQLite takes no more than so many values in a statement by far. */
const MOST_NAMES = 100;
const LONGEST_NAME = 300;
const MOST_RECORDS = 500;
const USUAL_RECORDS = 100;

export interface RecordsQuery {
  readonly selection: Selection;
  readonly before: string | null;
  readonly limit: number;
}

export function chartQuery(query: URLSearchParams): ChartQuestion | No {
  const selection = selectionIn(query, ["bin", "by"]);
  if (selection instanceof No) return selection;
  const [bin, by] = [query.get("bin") ?? "day", query.get("by") ?? "tool"];
  if (!isOneOf(BINS, bin)) return new No(400, `bin is one of ${BINS.join(", ")}`);
  if (!isOneOf(BYS, by)) return new No(400, `by is one of ${BYS.join(", ")}`);
  return { selection, unit: bin, by };
}

export function recordsQuery(query: URLSearchParams): RecordsQuery | No {
  const selection = selectionIn(query, ["end", "before", "limit"]);
  if (selection instanceof No) return selection;
  const [before, limit] = [query.get("before"), query.get("limit") ?? String(USUAL_RECORDS)];
  if (before !== null && !/^[0-9A-Z]{26}$/.test(before)) return new No(400, "before is the id of a record");
  if (!/^\d{1,3}$/.test(limit) || Number(limit) < 1 || Number(limit) > MOST_RECORDS)
    return new No(400, `limit is a number from 1 to ${MOST_RECORDS}`);
  return { selection, before, limit: Number(limit) };
}

export function csvQuery(query: URLSearchParams): Selection | No {
  return selectionIn(query, ["end"]);
}

function selectionIn(query: URLSearchParams, more: readonly string[]): Selection | No {
  const known = [...SELECTING, ...more];
  const unknown = [...query.keys()].find((name) => !known.includes(name));
  if (unknown !== undefined)
    return new No(400, `there is nothing called ${JSON.stringify(unknown)} to ask by`);
  const [since, until] = [momentIn(query, "since"), momentIn(query, "until")];
  if (since instanceof No) return since;
  if (until instanceof No) return until;
  if (since !== null && until !== null && since >= until)
    return new No(400, "since is not before until: nothing lies between them");
  const of = (name: By) => query.getAll(name);
  const names = { tool: of("tool"), model: of("model"), group: of("group"), key: of("key") };
  const all = Object.values(names).flat();
  if (all.length > MOST_NAMES || all.some((name) => name.length > LONGEST_NAME))
    return new No(400, `at most ${MOST_NAMES} names of ${LONGEST_NAME} characters each`);
  const ends = query.getAll("end");
  if (!ends.every((end) => isOneOf(ENDS, end)) || ends.length > ENDS.length)
    return new No(400, `end is one of ${ENDS.join(", ")}`);
  return { period: { since, until }, names, ends: ends as RecordEnd[] };
}

function momentIn(query: URLSearchParams, name: string): number | null | No {
  const text = query.get(name);
  if (text === null) return null;
  // The last moment that a Date can tell.
  const valid = /^\d{1,16}$/.test(text) && Number(text) <= 8_640_000_000_000_000;
  return valid ? Number(text) : new No(400, `${name} is a time in milliseconds`);
}

function isOneOf<T extends string>(list: readonly T[], text: string): text is T {
  return list.includes(text as T);
}
