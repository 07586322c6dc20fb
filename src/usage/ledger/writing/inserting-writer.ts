import type Database from "libsql";
import type { Closing, Opening } from "../../record.ts";
import type { Entry } from "./book.ts";
import { CLOSING_KIND, CLOSING_OWN, pushClosing, RUNNING } from "./closing-parts.ts";
import type { Kinds } from "./kinds.ts";
import { OPENING_KIND, OPENING_OWN, pushOpening } from "./opening-parts.ts";
import { RowStatements, type Value } from "./row-statements.ts";

/** So many fit into one statement. */
const MOST_AT_ONCE = 64;

/** Puts records into the log, those that run and those that are over, many with one statement, inside the caller's transaction. */
export class InsertingWriter {
  readonly #openings: Kinds<Opening>;
  readonly #closings: Kinds<Closing>;
  readonly #statements: RowStatements;

  constructor(db: Database.Database, openings: Kinds<Opening>, closings: Kinds<Closing>) {
    this.#openings = openings;
    this.#closings = closings;
    const width = OPENING_OWN.length + CLOSING_OWN.length + 2;
    this.#statements = new RowStatements(db, width, MOST_AT_ONCE, statement);
  }

  /** All of them; a fault of the kind `row` where one is there already. */
  write(entries: readonly Entry[]): void {
    this.#statements.runAll(entries, this.#push, "not every record could be written");
  }

  readonly #push = ({ opening, closing }: Entry, values: Value[]): void => {
    const end = closing ?? RUNNING;
    values.push(this.#openings.numberOf(opening), this.#closings.numberOf(end));
    pushOpening(opening, values);
    pushClosing(end, values);
  };
}

/** CROSS JOIN: in the order in which they are handed over, so that seq goes on telling the order in which they began. */
function statement(rows: string): string {
  const own = [...OPENING_OWN, ...CLOSING_OWN];
  const kinds = [
    ...OPENING_KIND.map((name) => ({
      name,
      from: name === "model" ? "coalesce(ended.model, begun.model)" : `begun."${name}"`,
    })),
    ...CLOSING_KIND.filter((name) => name !== "model").map((name) => ({ name, from: `ended."${name}"` })),
  ];
  return `INSERT INTO log.records (${[...own, ...kinds.map(({ name }) => name)].map((name) => `"${name}"`).join(", ")})
    SELECT ${own.map((_, at) => `one.column${at + 3}`).join(", ")}, ${kinds.map(({ from }) => from).join(", ")}
    FROM (VALUES ${rows}) AS one CROSS JOIN main.opening_kinds AS begun CROSS JOIN main.closing_kinds AS ended
    WHERE begun.number = one.column1 AND ended.number = one.column2`;
}
