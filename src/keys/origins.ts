/** Scheme, host and port, each once. */
export function originsOf({ origins }: { readonly origins: readonly string[] }): readonly string[] {
  return [...new Set(origins.map(originOf))];
}

function originOf(address: string): string {
  // What is no address is compared as it is written, and so is never taken for another.
  if (!URL.canParse(address)) return address;
  const { origin, protocol, host } = new URL(address);
  // Schemes the web does not know all have the origin "null", and would be one.
  return origin === "null" ? `${protocol}//${host}` : origin;
}
