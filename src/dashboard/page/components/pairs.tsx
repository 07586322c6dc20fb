import type { ComponentChildren } from "preact";

/** A name and what it stands for. */
export type Pair = readonly [name: string, value: ComponentChildren];

export function Pairs({ pairs }: { readonly pairs: readonly Pair[] }) {
  return (
    <dl class="pairs">
      {pairs.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
