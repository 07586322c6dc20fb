/** Names to look for: `*` stands for anything, everything else for itself. No patterns at all match everything. */
export function matches(patterns: readonly string[], name: string): boolean {
  return patterns.length === 0 || patterns.some((pattern) => matchesOne(pattern, name));
}

/** Without a regular expression, whose steps a pattern such as `*a*a*a*b` could multiply. */
function matchesOne(pattern: string, name: string): boolean {
  const parts = pattern.split("*");
  const [first = "", last = ""] = [parts[0], parts.at(-1)];
  if (parts.length === 1) return pattern === name;
  if (!name.startsWith(first) || name.length < first.length + last.length) return false;
  let at = first.length;
  for (const part of parts.slice(1, -1)) {
    const found = name.indexOf(part, at);
    if (found === -1) return false;
    at = found + part.length;
  }
  return name.endsWith(last) && name.length - last.length >= at;
}
