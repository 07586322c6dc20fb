/** The named properties of an object. */
export function pick<T extends object, Name extends keyof T>(
  value: T,
  names: readonly Name[],
): Pick<T, Name> {
  const picked = names.map((name) => [name, value[name]]);
  return Object.fromEntries(picked);
}
