import type { LimitStatus } from "../../../control/tool-status.ts";
import { statusFigures } from "../../../limits/format.ts";
import { joined, whenInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { fullest, limitName, type ShownLimit, shareOf, usedInWords } from "../limits.ts";

/** How full each limit is: in words for screen readers too, and as a bar. */
export function Gauges({ limits, time }: { readonly limits: readonly LimitStatus[]; readonly time: number }) {
  const { t } = useFrame();
  return (
    <ul class="grid">
      {limits.map((limit) => {
        const { resets_at: resets } = limit;
        const figures = statusFigures(limit);
        const { estimated, held } = figures;
        const notes = [
          estimated === null ? null : t("limit.estimated", { estimated }),
          held === null ? null : t("limit.held", { held }),
          resets === null ? null : t("limit.resets", { when: whenInWords(resets, time, t) }),
        ];
        return (
          <li key={`${limit.limit} ${limit.per}`} class="limit small">
            <span class="muted">{limitName(limit, t)}</span>
            <span>{usedInWords(figures, t)}</span>
            <Bar limit={limit} />
            <span class="muted">{joined(notes, t)}</span>
          </li>
        );
      })}
    </ul>
  );
}

interface FullestLimitProps {
  readonly limits: readonly ShownLimit[];
  /** Said where there is none. */
  readonly none: string;
}

/** The limit of which the least is left. */
export function FullestLimit({ limits, none }: FullestLimitProps) {
  const { t } = useFrame();
  const limit = fullest(limits);
  if (limit === null) return <span class="muted">{none}</span>;
  return (
    <div>
      {usedInWords(statusFigures(limit), t)} <span class="muted small">{limitName(limit, t)}</span>
      <Bar limit={limit} />
    </div>
  );
}

/** What is reserved for requests in flight counts. The words beside it say the same. */
function Bar({ limit }: { readonly limit: ShownLimit }) {
  return <meter value={shareOf(limit)} low={0.85} high={0.999} optimum={0} aria-hidden="true" />;
}
