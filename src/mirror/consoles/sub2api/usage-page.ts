import { needList, needWhole } from "../answers.ts";
import { ConsoleFault } from "../console.ts";
import { asObject, countAt } from "../json.ts";
import type { Sub2apiSession } from "../sub2api-session.ts";
import { dataOf } from "./envelope.ts";
import { type NumberedRow, rowOf } from "./row.ts";

export interface UsagePage {
  /** From 1. */
  readonly page: number;
  /** Rows a page. */
  readonly size: number;
  /** Rows in all. */
  readonly total: number;
  /** Newest first, by id. Those that could be read. */
  readonly rows: readonly NumberedRow[];
  /** There is no page after this one. */
  readonly last: boolean;
}

/** Reads pages of the usage log, as large as this console gives them. */
export interface UsagePages {
  read(page: number): Promise<UsagePage>;
}

/** What recent versions give at most, and what old ones do. A size that is too large is not cut but ignored. */
const SIZE = 1000;
const OLD_SIZE = 100;
const ABOUT = "the usage log";

/** @param pace waits until the usage log may be asked again */
export function createUsagePages(session: Sub2apiSession, pace: () => Promise<void>): UsagePages {
  let size = SIZE;
  /** Its word on the size of a page was found to be wrong. */
  let isWrong = false;

  async function ask(page: number): Promise<UsagePage> {
    await pace();
    // By id and not by time: a row that is written late has a higher id than those that were read before it.
    const query = `page=${page}&page_size=${size}&sort_by=id&sort_order=desc&timezone=UTC`;
    const data = dataOf(await session.ask(`/api/v1/usage?${query}`), ABOUT);
    const items = needList(data, "items", ABOUT);
    const total = needWhole(data, "total", ABOUT);
    const said = (isWrong ? null : countAt(data, "page_size")) || size;
    const given = sizeOf(items.length, said, page, total);
    isWrong ||= given !== said;
    const last = items.length === 0 || page * given >= total;
    return { page, size: given, total, rows: readable(items), last };
  }

  return {
    async read(page) {
      const asked = size;
      let answer = await ask(page);
      if (answer.size < OLD_SIZE && asked > OLD_SIZE) {
        size = OLD_SIZE;
        answer = await ask(page);
      }
      size = answer.size;
      return answer;
    },
  };
}

/** The answer's own word, unless the first page, whose place in the log does not depend on it, shows otherwise. */
function sizeOf(items: number, said: number, page: number, total: number): number {
  return page === 1 && items > 0 && (items > said || (items < said && items < total)) ? items : said;
}

/** One row that cannot be read is passed over; when all of them cannot, this is another console. */
function readable(items: readonly unknown[]): NumberedRow[] {
  const rows = items.map(asObject).flatMap((item) => (item === null ? [] : (rowOf(item) ?? [])));
  if (rows.length === 0 && items.length > 0) {
    throw new ConsoleFault(
      "other-shape",
      `answered ${ABOUT} with rows that have no usable "id" and "created_at"`,
    );
  }
  return rows;
}
