import { openForReading } from "../../../src/usage/ledger/connect.ts";

export interface Recorded {
  readonly records: number;
  /** With tokens as the upstream reported them, and a price. */
  readonly metered: number;
}

/** That everything was really on: what keybearer's own usage log holds of the requests that were sent. */
export function recorded(file: string): Recorded {
  const opened = openForReading(file);
  if (!opened.ok) throw new Error(opened.words);
  const { db, close } = opened.connection;
  const count = (where: string) =>
    Number((db.prepare(`SELECT count(*) FROM records WHERE ${where}`).raw().get() as number[])[0]);
  const found = {
    records: count("1"),
    metered: count("tokens_from = 'reported' AND cost_microdollars > 0"),
  };
  close();
  return found;
}
