/** A small square of a layer's color: beside its name, never instead of it. */
export function Swatch({ paint }: { readonly paint: string }) {
  return (
    <svg class="swatch" viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
      <rect width="10" height="10" rx="2" style={{ fill: `var(${paint})` }} />
    </svg>
  );
}
