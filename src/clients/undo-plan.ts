import { Secret } from "../core/secret.ts";
import type { Path } from "./format.ts";
import {
  type Before,
  type ChangedField,
  contentOf,
  type FieldState,
  type FileKind,
  isEmpty,
  judgeField,
  takeBack,
} from "./undo.ts";
import { keysIn, type StoredKey, type UndoRecord, type UndoStore, type WrittenFile } from "./undo-store.ts";

/* What taking back a write would do to one of its files. Nothing is changed yet. */

type Field = ChangedField<StoredKey>;

export type UndoPlan =
  | {
      readonly ok: true;
      /** The file's new text; null: it was not there before, and is removed. */
      readonly text: string | null;
      /** Changed since, so they stay. */
      readonly left: readonly Field[];
      /** Their old key is not stored any more. */
      readonly lost: readonly Field[];
      /** They get the key that is stored there now, because the old one was replaced since. */
      readonly replaced: readonly Field[];
      /** The keys that go back. */
      readonly restored: readonly { readonly path: Path; readonly fingerprint: string }[];
    }
  /** Continues a sentence that begins with the file. */
  | { readonly ok: false; readonly problem: string };

export interface UndoOptions {
  /** Also what was changed since. */
  readonly force: boolean;
  /** Whether a key that was replaced since goes back as the tool's key of today. Default: it does not. */
  readonly isRenewed?: boolean;
}

/** @param found what is in the file; null: it does not exist. */
export async function planUndo(
  store: UndoStore,
  record: UndoRecord,
  file: WrittenFile<StoredKey>,
  found: string | null,
  { force, isRenewed = false }: UndoOptions,
): Promise<UndoPlan> {
  const { change, existed } = file;
  const kind = store.kindOf(record, file);
  if (found === null && !existed)
    return { ok: true, text: null, left: [], lost: [], replaced: [], restored: [] };
  if (found === null && !force) return refused("is gone. to make it again with the old settings");
  const text = contentOf(kind, found);
  const states = fieldStates(store, record, file, kind, text);
  const isIn = (field: Field, ...wanted: FieldState[]) => wanted.includes(states.get(field) ?? "changed");
  const taken = change.fields.filter((field) => isIn(field, "ours") || (force && isIn(field, "changed")));
  const left = force ? [] : change.fields.filter((field) => isIn(field, "changed"));
  const keys = keysIn(taken);
  // The program that changed the address would get the key.
  const address = left.find(({ holds }) => holds === "address");
  if (keys.length > 0 && address !== undefined)
    return refused(
      `has another ${address.path.join(".")} since, and the old key belongs to the old one; nothing changed. to put both back`,
    );
  const oldKeys = new Map<StoredKey, string | null>();
  const replaced: Field[] = [];
  for (const field of taken) {
    const key = keyOf(field);
    if (key === null) continue;
    const old = await store.oldKey(record, key);
    const address = oldAddress(field, change.fields);
    const now = old === null && isRenewed ? await store.currentKey(record, address) : null;
    oldKeys.set(key, old ?? now);
    if (now !== null) replaced.push(field);
  }
  const lost = taken.filter((field) => {
    const key = keyOf(field);
    return key !== null && oldKeys.get(key) === null;
  });
  if (lost.length > 0 && !force)
    return refused(
      `was left as it is: the key that was in ${lost[0]?.path.join(".")} is not stored any more. to go back without it`,
    );
  const back = takeBack(kind, change, text, taken, (key) => oldKeys.get(key) ?? null);
  if (!back.ok) return refused(`was left as it is: ${back.problem}. to try again`);
  if (back.text === text && left.length > 0)
    return refused("holds nothing of the last --write any more; nothing changed. to go back anyway");
  const isGone = !existed && isEmpty(kind, back.text);
  const restored = taken.flatMap((field) => {
    const stored = keyOf(field);
    const key = stored === null ? null : (oldKeys.get(stored) ?? null);
    return key === null ? [] : [{ path: field.path, fingerprint: new Secret(key).fingerprint }];
  });
  return { ok: true, text: isGone ? null : back.text, left, lost, replaced, restored };
}

/** Which fields of a file still hold what keybearer wrote. */
export function fieldStates(
  store: UndoStore,
  record: UndoRecord,
  { change }: WrittenFile<StoredKey>,
  kind: FileKind,
  text: string,
): ReadonlyMap<Field, FieldState> {
  const isKey = (key: StoredKey, value: string) => store.isKey(record, key, value);
  return new Map(change.fields.map((field) => [field, judgeField(kind, change, field, text, isKey)]));
}

function keyOf({ before }: { readonly before: Before<StoredKey> }): StoredKey | null {
  return before === null || "value" in before ? null : before.key;
}

/** The address that a key was beside: the one nearest to it in the file. null: none, or several could be meant. */
function oldAddress(key: Field, fields: readonly Field[]): string | null {
  const near = (field: Field) => {
    const index = field.path.findIndex((name, depth) => name !== key.path[depth]);
    return index === -1 ? field.path.length : index;
  };
  const addresses = fields.filter(({ holds }) => holds === "address");
  const nearest = Math.max(...addresses.map(near));
  const [address, ...others] = addresses.filter((field) => near(field) === nearest);
  const before = others.length > 0 ? null : (address?.before ?? null);
  return before !== null && "value" in before ? String(before.value) : null;
}

function refused(problem: string): { readonly ok: false; readonly problem: string } {
  return { ok: false, problem };
}
