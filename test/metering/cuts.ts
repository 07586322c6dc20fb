import fc from "fast-check";

/** The same bytes in pieces, at these places, wherever they fall. */
export function cutAt(bytes: Buffer, paths: readonly number[]): Buffer[] {
  const at = [0, ...paths.map((place) => place % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  return at.slice(1).map((to, i) => bytes.subarray(at[i], to));
}

export const someCuts = fc.array(fc.nat(5000), { maxLength: 40 });
