import type { LimitStatus } from "../../../control/tool-status.ts";
import { statusFigures } from "../../../limits/format.ts";
import { whenInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { fullnessOf, limitName } from "../limit-amount.ts";

/** How full one limit is: in words for screen readers too, and as a bar. */
export function Gauge({ status, time }: { readonly status: LimitStatus; readonly time: number }) {
  const { t } = useFrame();
  const { resets_at: resets } = status;
  const { used, estimated, held, max } = statusFigures(status);
  const notes = [
    ...(estimated === null ? [] : [t("limit.estimated", { estimated })]),
    ...(held === null ? [] : [t("limit.held", { held })]),
    ...(resets === null ? [] : [t("limit.resets", { when: whenInWords(resets, time, t) })]),
  ];
  return (
    <li class="limit">
      <span class="limit-name">{limitName(status, t)}</span>
      <span class="limit-amount">{t("limit.of", { used: used ?? "–", most: max })}</span>
      <Bar status={status} />
      {notes.length === 0 ? null : <span class="limit-notes">{notes.join(t("frame.comma"))}</span>}
    </li>
  );
}

/** What is reserved for requests in flight is drawn paler, behind what is used for good. */
export function Bar({ status }: { readonly status: LimitStatus }) {
  const { used, held, most } = status;
  const share = (amount: number) => (most <= 0 ? 100 : Math.min(100, (100 * amount) / most));
  // Something is never drawn as nothing.
  const width = (amount: number) => (amount > 0 ? Math.max(1.5, share(amount)) : 0);
  return (
    <svg class="gauge" data-full={fullnessOf(status)} aria-hidden="true" width="100%" height="6">
      <rect class="ground" width="100%" height="6" />
      <rect class="held" width={`${width((used ?? 0) + (held ?? 0))}%`} height="6" />
      <rect class="used" width={`${width(used ?? 0)}%`} height="6" />
    </svg>
  );
}
