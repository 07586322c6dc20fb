/**
 * Whether a group has a model. Letters count as they stand: sub2api compares byte by byte, and so do the gateways that
 * look a name up in a table, so a name in other letters would be refused there as well.
 */
export function isInGroup(model: string, patterns: readonly string[]): boolean {
  // By index: V8 makes an object for every step through a frozen list, which a configuration's lists are.
  for (let at = 0; at < patterns.length; at += 1) if (matches(model, patterns[at] ?? "")) return true;
  return false;
}

/**
 * `*` stands for any text, none included. Each piece between two stars is looked for once, from where the one before
 * ended: no backtracking, so that no pattern can make it slow.
 */
function matches(model: string, pattern: string): boolean {
  const first = pattern.indexOf("*");
  if (first === -1) return model === pattern;
  // By far the most end in their only star.
  if (first === pattern.length - 1) return model.startsWith(pattern.slice(0, first));
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
