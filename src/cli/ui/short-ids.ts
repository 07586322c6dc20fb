/** Shorter ids are not shortened: a person may have chosen them. */
const MAX_WHOLE = 20;
const MIN_LENGTH = 8;

/** Long ids, shortened to beginnings that are still different. Commands take these beginnings for the ids. */
export function shortIds<Id extends string | null>(ids: readonly Id[]): (string | Id)[] {
  const sorted = [...new Set(ids.filter((id) => id !== null))].sort();
  const short = new Map<string | null, string>();
  for (const [at, id] of sorted.entries()) {
    if (id.length <= MAX_WHOLE || id.includes("/")) continue;
    const others = [sorted[at - 1] ?? "", sorted[at + 1] ?? ""];
    const common = Math.max(...others.map((other) => commonLength(id, other)));
    short.set(id, id.slice(0, Math.max(MIN_LENGTH, common + 1)));
  }
  return ids.map((id) => short.get(id) ?? id);
}

function commonLength(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length += 1;
  return length;
}
