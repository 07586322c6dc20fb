/** The known name that was probably meant; null: none is near. */
export function nearest(name: string, known: readonly string[]): string | null {
  const folded = (text: string) => text.toLowerCase().replace(/[-_ ]/g, "");
  let best: string | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const candidate of known) {
    const mistakes = distance(folded(name).slice(0, 40), folded(candidate));
    if (mistakes > (candidate.length <= 4 ? 1 : 2) || mistakes >= least) continue;
    best = candidate;
    least = mistakes;
  }
  return best;
}

/** How many letters are wrong, missing, too many or swapped with the next one. */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      let least = Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, replaced);
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (isSwapped) least = Math.min(least, (before[j - 2] ?? 0) + 1);
      next.push(least);
    }
    before = row;
    row = next;
  }
  return row[b.length] ?? 0;
}
