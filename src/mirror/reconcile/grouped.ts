/** Map.groupBy, which Node 20 does not have: the groups, and what is in them, in the order in which they come. */
export function grouped<T, K>(items: Iterable<T>, nameOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const name = nameOf(item);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [item]);
    else group.push(item);
  }
  return groups;
}
