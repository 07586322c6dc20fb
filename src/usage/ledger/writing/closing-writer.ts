import type Database from "libsql";
import type { Closing } from "../../record.ts";
import type { Finished } from "./book.ts";
import { CLOSING_KIND, CLOSING_OWN, pushClosing } from "./closing-parts.ts";
import type { Kinds } from "./kinds.ts";
import { RowStatements, type Value } from "./row-statements.ts";

/** So many fit into one statement. */
const MOST_AT_ONCE = 16;

/** Completes records that run, many with one statement, inside the caller's transaction. */
export class ClosingWriter {
  readonly #kinds: Kinds<Closing>;
  readonly #statements: RowStatements;

  constructor(db: Database.Database, kinds: Kinds<Closing>) {
    this.#kinds = kinds;
    this.#statements = new RowStatements(db, CLOSING_OWN.length + 2, MOST_AT_ONCE, statement);
  }

  /** All of them; a fault of the kind `row` where one is complete already, or not there. */
  write(entries: readonly Finished[]): void {
    this.#statements.runAll(entries, this.#push, "not every record could be completed");
  }

  readonly #push = ({ opening, closing }: Finished, values: Value[]): void => {
    values.push(this.#kinds.numberOf(closing), opening.id);
    pushClosing(closing, values);
  };
}

/** The index is named: whatever SQLite learns about the file, it must not look through all that runs for each of them. */
function statement(rows: string): string {
  const taken = CLOSING_KIND.map((name) =>
    name === "model" ? "model = coalesce(kind.model, records.model)" : `"${name}" = kind."${name}"`,
  );
  return `UPDATE log.records INDEXED BY sqlite_autoindex_records_1
    SET ${CLOSING_OWN.map((name, at) => `"${name}" = one.column${at + 3}`).join(", ")}, ${taken.join(", ")}
    FROM (VALUES ${rows}) AS one CROSS JOIN main.closing_kinds AS kind
    WHERE kind.number = one.column1 AND records.id = one.column2 AND records.end IS NULL`;
}
