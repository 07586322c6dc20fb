/** Whether a group has a model. Case matters, as it does in sub2api and in gateways that look the name up in a table. */
export function isInGroup(model: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => matches(model, pattern));
}

/**
 * `*` stands for any text, including none. Each piece between two stars is searched for once, from the end of the one before:
 * without backtracking, no pattern can make it slow.
 */
function matches(model: string, pattern: string): boolean {
  if (!pattern.includes("*")) return model === pattern;
  const [head = "", ...pieces] = pattern.split("*");
  const tail = pieces.pop() ?? "";
  if (!model.startsWith(head)) return false;
  let at = head.length;
  for (const piece of pieces) {
    const found = model.indexOf(piece, at);
    if (found === -1) return false;
    at = found + piece.length;
  }
  return model.length - tail.length >= at && model.endsWith(tail);
}
