import type { ConsoleRow } from "../console-row.ts";
import type { AccountFacts, ConsoleAdapter, ConsoleKey, Page } from "../consoles/console.ts";
import { ConsoleFault } from "../consoles/console.ts";
import { asObject, objectAt } from "../consoles/json.ts";

interface NamedAccount {
  readonly name: string;
  /** Throws a ConsoleFault where this account cannot be logged in to. */
  readonly open: () => ConsoleAdapter;
}

/**
 * Several accounts of one console, read one after the other as if they were one. An account that cannot be read does not
 * keep the others from being read; its keys are listed by no account then. Throws where none can be opened.
 */
export function openAccounts(accounts: readonly NamedAccount[]): ConsoleAdapter {
  const opened: { readonly name: string; readonly adapter: ConsoleAdapter }[] = [];
  const shut: ConsoleFault[] = [];
  for (const { name, open } of accounts) {
    try {
      opened.push({ name, adapter: open() });
    } catch (error) {
      shut.push(faultOf(error, name));
    }
  }
  const [first] = opened;
  if (first === undefined) throw shut[0] ?? new ConsoleFault("login-needed", "has no account");
  /** Of the sync that runs, by account. */
  const faults = new Map<string, ConsoleFault>();

  /** What each account answers, without those that fail. Throws where all of them do. */
  async function ask<T>(question: (adapter: ConsoleAdapter) => Promise<T>): Promise<[string, T][]> {
    const answers: [string, T][] = [];
    for (const { name, adapter } of opened) {
      if (faults.has(name)) continue;
      try {
        answers.push([name, await question(adapter)]);
      } catch (error) {
        faults.set(name, faultOf(error, name));
      }
    }
    if (answers.length === 0) throw [...faults.values()][0];
    return answers;
  }

  async function keys(): Promise<readonly ConsoleKey[] | null> {
    // A sync begins with the keys.
    faults.clear();
    const lists = await ask((adapter) => adapter.keys());
    return lists.flatMap(([name, list]) => (list ?? []).map((key) => keyOf(key, name)));
  }

  async function account(): Promise<AccountFacts> {
    const facts = (await ask((adapter) => adapter.account())).map(([, one]) => one);
    const balances = facts.map(({ balance }) => balance);
    const isKnown = balances.every((balance) => balance !== null);
    return {
      balance: isKnown ? balances.reduce((sum, balance) => sum + balance, 0) : null,
      console_version: facts[0]?.console_version ?? null,
    };
  }

  async function* walk(cursor: string | null, since: number): AsyncGenerator<Page> {
    const cursors = cursorsIn(cursor);
    let before = 0;
    for (const { name, adapter } of opened) {
      if (faults.has(name)) continue;
      let done = 0;
      try {
        for await (const page of adapter.walk(cursors.get(name) ?? null, since)) {
          cursors.set(name, page.cursor);
          done = page.done;
          const rows = page.rows.map((row) => rowOf(row, name));
          yield { ...page, rows, cursor: cursorsText(cursors), done: before + done, total: null };
        }
      } catch (error) {
        faults.set(name, faultOf(error, name));
      }
      before += done;
    }
    const [fault] = faults.values();
    if (fault !== undefined && faults.size === opened.length) throw fault;
  }

  return {
    kind: first.adapter.kind,
    idNames: first.adapter.idNames,
    billsFailures: first.adapter.billsFailures,
    socketRowsHaveIds: first.adapter.socketRowsHaveIds,
    walk,
    keys,
    account,
    fault: () => [...faults.values(), ...shut][0] ?? null,
  };
}

/** Throws what is no fault of the console. */
function faultOf(error: unknown, account: string): ConsoleFault {
  if (!(error instanceof ConsoleFault)) throw error;
  if (error.kind === "needs-trust") return error;
  return new ConsoleFault(error.kind, `(account ${account}) ${error.message}`, error.retryAfter, account);
}

/**
 * The numbers of keys and rows are those of the whole console. Two accounts can each have a key of the same name. The
 * identity of a row stays as it is, so that a row is the same before and after its account stands in a list.
 */
function rowOf(row: ConsoleRow, account: string): ConsoleRow {
  return row.key_ref === null ? row : { ...row, key_ref: refOf(row.key_ref, account) };
}

function keyOf(key: ConsoleKey, account: string): ConsoleKey {
  return { ...key, account, ref: refOf(key.ref, account) };
}

function refOf(ref: string, account: string): string {
  return ref.startsWith("name:") ? `name:${account}/${ref.slice("name:".length)}` : ref;
}

/** Of an account that was the only one so far, the log is walked once more, which changes nothing twice. */
function cursorsIn(text: string | null): Map<string, string> {
  const accounts = text === null ? null : objectAt(parsed(text) ?? {}, "accounts");
  const texts = Object.entries(accounts ?? {}).filter(([, cursor]) => typeof cursor === "string");
  return new Map(texts.map(([name, cursor]) => [name, String(cursor)]));
}

function cursorsText(cursors: ReadonlyMap<string, string>): string {
  return JSON.stringify({ accounts: Object.fromEntries(cursors) });
}

function parsed(text: string) {
  try {
    return asObject(JSON.parse(text));
  } catch {
    return null;
  }
}
