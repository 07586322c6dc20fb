import { objectAt, parseObject } from "../../core/json.ts";
import type { ConsoleRow } from "../console-row.ts";
import {
  type AccountFacts,
  type ConsoleAdapter,
  ConsoleError,
  type ConsoleKey,
  type CreatedKey,
  type KeyActions,
  type KeyPlan,
  type Page,
} from "./console.ts";

/** By account. */
type AccountErrors = Map<string, ConsoleError>;

interface NamedAdapter {
  readonly name: string;
  readonly adapter: ConsoleAdapter;
}

interface NamedAccount {
  readonly name: string;
  /** Throws a ConsoleError where the account needs a login. */
  readonly open: () => ConsoleAdapter;
}

/**
 * Several accounts of one console, read one after the other as if they were one. If an account cannot be read, the others
 * still are; then no account lists its keys.
 */
export class SeveralAccounts implements ConsoleAdapter {
  readonly kind;
  readonly idNames;
  readonly billsFailures;
  readonly socketRowsHaveIds;
  readonly #opened: readonly NamedAdapter[];
  /** Why an account has no login, by account. */
  readonly #unopened: ReadonlyMap<string, ConsoleError>;
  /** Of the last list of keys, and of the last walk, by account. Keys may be listed during a walk. */
  #listErrors: AccountErrors = new Map();
  #walkErrors: AccountErrors = new Map();

  /** Throws a ConsoleError where none can be opened. */
  constructor(accounts: readonly NamedAccount[]) {
    const opened: NamedAdapter[] = [];
    const unopened = new Map<string, ConsoleError>();
    for (const { name, open } of accounts) {
      try {
        opened.push({ name, adapter: open() });
      } catch (error) {
        unopened.set(name, toConsoleError(error, name));
      }
    }
    const [first] = opened;
    if (first === undefined) {
      const [error] = unopened.values();
      throw error ?? new ConsoleError("login-needed", "has no account");
    }
    this.kind = first.adapter.kind;
    this.idNames = first.adapter.idNames;
    this.billsFailures = first.adapter.billsFailures;
    this.socketRowsHaveIds = first.adapter.socketRowsHaveIds;
    this.#opened = opened;
    this.#unopened = unopened;
  }

  async keys(): Promise<readonly ConsoleKey[]> {
    const errors: AccountErrors = new Map();
    const keys: ConsoleKey[] = [];
    await this.#each(errors, async ({ name, adapter }) => {
      for (const key of await adapter.keys())
        keys.push({ ...key, account: name, ref: addAccount(key.ref, name) });
    });
    this.#listErrors = errors;
    return keys;
  }

  /** The balances together; null: one of them is unknown. */
  async account(): Promise<AccountFacts> {
    const errors = this.#listErrors;
    const facts: AccountFacts[] = [];
    await this.#each(errors, async ({ adapter }) => {
      facts.push(await adapter.account());
    });
    let balance: number | null = 0;
    for (const one of facts)
      balance = balance === null || one.balance === null ? null : balance + one.balance;
    return { balance, console_version: facts[0]?.console_version ?? null };
  }

  async *walk(cursor: string | null, since: number): AsyncGenerator<Page> {
    const errors: AccountErrors = new Map(this.#listErrors);
    this.#walkErrors = errors;
    const cursors = readCursors(cursor);
    let before = 0;
    for (const { name, adapter } of this.#opened) {
      if (errors.has(name)) continue;
      let done = 0;
      try {
        for await (const page of adapter.walk(cursors.get(name) ?? null, since)) {
          cursors.set(name, page.cursor);
          done = page.done;
          const rows = page.rows.map((row) => addAccountToRow(row, name));
          const cursorText = JSON.stringify({ accounts: Object.fromEntries(cursors) });
          yield { ...page, rows, cursor: cursorText, done: before + done, total: null };
        }
      } catch (error) {
        errors.set(name, toConsoleError(error, name));
      }
      before += done;
    }
    this.#throwIfAllFailed(errors);
  }

  lastError(of: "rows" | "keys"): ConsoleError | null {
    const errors = of === "rows" ? this.#walkErrors : this.#listErrors;
    return [...errors.values(), ...this.#unopened.values()][0] ?? null;
  }

  keyActions(account: string | null): KeyActions {
    const opened = this.#opened.find(({ name }) => name === account);
    const actions = opened?.adapter.keyActions?.(null);
    if (opened !== undefined && actions !== undefined) return new AccountKeyActions(actions, opened.name);
    const error = this.#unopened.get(account ?? "");
    const names = this.#opened.map(({ name }) => name).join(", ");
    throw error ?? new ConsoleError("refused", `has several accounts, so say which: ${names}`);
  }

  /** Skips accounts that have failed. Throws where all of them have. */
  async #each(errors: AccountErrors, read: (account: NamedAdapter) => Promise<void>): Promise<void> {
    for (const account of this.#opened) {
      if (errors.has(account.name)) continue;
      try {
        await read(account);
      } catch (error) {
        errors.set(account.name, toConsoleError(error, account.name));
      }
    }
    this.#throwIfAllFailed(errors);
  }

  #throwIfAllFailed(errors: AccountErrors): void {
    const [error] = errors.values();
    if (error !== undefined && errors.size === this.#opened.length) throw error;
  }
}

/** The key actions of one of several accounts: refs and errors name the account. */
class AccountKeyActions implements KeyActions {
  readonly takesOwnKeys;
  readonly needsGroup;
  readonly #actions: KeyActions;
  readonly #account: string;

  constructor(actions: KeyActions, account: string) {
    this.takesOwnKeys = actions.takesOwnKeys;
    this.needsGroup = actions.needsGroup;
    this.#actions = actions;
    this.#account = account;
  }

  groups(): Promise<readonly string[] | null> {
    return this.#run(() => this.#actions.groups());
  }

  async create(plan: KeyPlan): Promise<CreatedKey> {
    const { settings } = plan;
    const own =
      "like" in settings
        ? { ...plan, settings: { ...settings, like: this.#removeAccount(settings.like) } }
        : plan;
    const created = await this.#run(() => this.#actions.create(own));
    return { ...created, ref: addAccount(created.ref, this.#account) };
  }

  async find(name: string): Promise<string | null> {
    const ref = await this.#run(() => this.#actions.find(name));
    return ref === null ? null : addAccount(ref, this.#account);
  }

  setEnabled(ref: string, enabled: boolean): Promise<void> {
    return this.#run(() => this.#actions.setEnabled(this.#removeAccount(ref), enabled));
  }

  delete(ref: string): Promise<void> {
    return this.#run(() => this.#actions.delete(this.#removeAccount(ref)));
  }

  /** Undoes addAccount. */
  #removeAccount(ref: string): string {
    const prefix = `name:${this.#account}/`;
    return ref.startsWith(prefix) ? `name:${ref.slice(prefix.length)}` : ref;
  }

  async #run<T>(action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (error) {
      throw toConsoleError(error, this.#account);
    }
  }
}

/** Throws what is not an error of the console. */
function toConsoleError(error: unknown, account: string): ConsoleError {
  if (!(error instanceof ConsoleError)) throw error;
  if (error.kind === "needs-trust") return error;
  return new ConsoleError(error.kind, `(account ${account}) ${error.message}`, error.retryAfter, account);
}

/** The identity stays, so that a row is the same before and after its account became one of several. */
function addAccountToRow(row: ConsoleRow, account: string): ConsoleRow {
  return row.key_ref === null ? row : { ...row, key_ref: addAccount(row.key_ref, account) };
}

/** Ids of keys are unique in a console. Names are not: two accounts can each have a key of the same name. */
function addAccount(ref: string, account: string): string {
  return ref.startsWith("name:") ? `name:${account}/${ref.slice("name:".length)}` : ref;
}

/** By account. The cursor of a former single account has another format: it is read again, which changes nothing. */
function readCursors(text: string | null): Map<string, string> {
  const accounts = Object.entries(objectAt(parseObject(text ?? ""), "accounts") ?? {});
  return new Map(accounts.flatMap(([name, cursor]) => (typeof cursor === "string" ? [[name, cursor]] : [])));
}
