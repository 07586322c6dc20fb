import type { ConsoleRow } from "../console-row.ts";
import {
  type AccountFacts,
  type ConsoleAdapter,
  ConsoleFault,
  type ConsoleKey,
  type Page,
} from "../consoles/console.ts";
import { asObject, objectAt } from "../consoles/json.ts";

interface NamedAccount {
  readonly name: string;
  /** Throws a ConsoleFault where this account has no login. */
  readonly open: () => ConsoleAdapter;
}

interface NamedAdapter {
  readonly name: string;
  readonly adapter: ConsoleAdapter;
}

/**
 * Several accounts of one console, read one after the other as if they were one. An account that cannot be read does not
 * keep the others from being read; its keys are then listed by no account.
 */
export class SeveralAccounts implements ConsoleAdapter {
  readonly kind;
  readonly idNames;
  readonly billsFailures;
  readonly socketRowsHaveIds;
  readonly #opened: readonly NamedAdapter[];
  /** Of accounts without a login. */
  readonly #unopened: readonly ConsoleFault[];
  /** Of the sync in progress, by account. */
  readonly #faults = new Map<string, ConsoleFault>();

  /** Throws a ConsoleFault where none can be opened. */
  constructor(accounts: readonly NamedAccount[]) {
    const opened: NamedAdapter[] = [];
    const unopened: ConsoleFault[] = [];
    for (const { name, open } of accounts) {
      try {
        opened.push({ name, adapter: open() });
      } catch (error) {
        unopened.push(faultOf(error, name));
      }
    }
    const [first] = opened;
    if (first === undefined) throw unopened[0] ?? new ConsoleFault("login-needed", "has no account");
    this.kind = first.adapter.kind;
    this.idNames = first.adapter.idNames;
    this.billsFailures = first.adapter.billsFailures;
    this.socketRowsHaveIds = first.adapter.socketRowsHaveIds;
    this.#opened = opened;
    this.#unopened = unopened;
  }

  async keys(): Promise<readonly ConsoleKey[]> {
    // A sync begins with the keys.
    this.#faults.clear();
    const keys: ConsoleKey[] = [];
    await this.#each(async ({ name, adapter }) => {
      for (const key of await adapter.keys()) keys.push({ ...key, account: name, ref: refOf(key.ref, name) });
    });
    return keys;
  }

  /** The balances together; null: one of them is unknown. */
  async account(): Promise<AccountFacts> {
    const facts: AccountFacts[] = [];
    await this.#each(async ({ adapter }) => {
      facts.push(await adapter.account());
    });
    let balance: number | null = 0;
    for (const one of facts)
      balance = balance === null || one.balance === null ? null : balance + one.balance;
    return { balance, console_version: facts[0]?.console_version ?? null };
  }

  async *walk(cursor: string | null, since: number): AsyncGenerator<Page> {
    const cursors = cursorsIn(cursor);
    let before = 0;
    for (const { name, adapter } of this.#opened) {
      if (this.#faults.has(name)) continue;
      let done = 0;
      try {
        for await (const page of adapter.walk(cursors.get(name) ?? null, since)) {
          cursors.set(name, page.cursor);
          done = page.done;
          const rows = page.rows.map((row) => rowOf(row, name));
          const cursorText = JSON.stringify({ accounts: Object.fromEntries(cursors) });
          yield { ...page, rows, cursor: cursorText, done: before + done, total: null };
        }
      } catch (error) {
        this.#faults.set(name, faultOf(error, name));
      }
      before += done;
    }
    this.#throwIfAllFailed();
  }

  fault(): ConsoleFault | null {
    return [...this.#faults.values(), ...this.#unopened][0] ?? null;
  }

  /** Skips accounts that failed in this sync. Throws where all of them have. */
  async #each(read: (account: NamedAdapter) => Promise<void>): Promise<void> {
    for (const account of this.#opened) {
      if (this.#faults.has(account.name)) continue;
      try {
        await read(account);
      } catch (error) {
        this.#faults.set(account.name, faultOf(error, account.name));
      }
    }
    this.#throwIfAllFailed();
  }

  #throwIfAllFailed(): void {
    const [fault] = this.#faults.values();
    if (fault !== undefined && this.#faults.size === this.#opened.length) throw fault;
  }
}

/** Throws what is not a fault of the console. */
function faultOf(error: unknown, account: string): ConsoleFault {
  if (!(error instanceof ConsoleFault)) throw error;
  if (error.kind === "needs-trust") return error;
  return new ConsoleFault(error.kind, `(account ${account}) ${error.message}`, error.retryAfter, account);
}

/** A row's identity stays as it is, so that it is the same row before and after its account became one of several. */
function rowOf(row: ConsoleRow, account: string): ConsoleRow {
  return row.key_ref === null ? row : { ...row, key_ref: refOf(row.key_ref, account) };
}

/** Ids of keys are unique in a console. Names are not: two accounts can each have a key of the same name. */
function refOf(ref: string, account: string): string {
  return ref.startsWith("name:") ? `name:${account}/${ref.slice("name:".length)}` : ref;
}

/** By account. An account that was the only one so far has another cursor here: it is read again, which changes nothing. */
function cursorsIn(text: string | null): Map<string, string> {
  const accounts = Object.entries(objectAt(parsed(text) ?? {}, "accounts") ?? {});
  return new Map(accounts.flatMap(([name, cursor]) => (typeof cursor === "string" ? [[name, cursor]] : [])));
}

function parsed(text: string | null) {
  try {
    return asObject(JSON.parse(text ?? "{}"));
  } catch {
    // The cursor of a single account need not be JSON.
    return null;
  }
}
