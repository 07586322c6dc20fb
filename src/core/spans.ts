/** A piece of a text or of time: `from` up to, but not including, `to`. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** In order, with those that overlap or touch merged. A merged span keeps the other fields of its first part. */
export function mergeSpans<S extends Span>(spans: readonly S[]): S[] {
  const merged: S[] = [];
  for (const span of spans.toSorted((a, b) => a.from - b.from)) {
    const last = merged.at(-1);
    if (last === undefined || span.from > last.to) merged.push(span);
    else if (span.to > last.to) merged[merged.length - 1] = { ...last, to: span.to };
  }
  return merged;
}
