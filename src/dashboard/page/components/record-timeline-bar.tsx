import { duration } from "../../../usage/reports/format.ts";
import type { ShownRecord } from "../../api.ts";
import { useFrame } from "../frame.tsx";
import { barsOf, type Stretch, stretchesOf } from "./record-timeline.ts";

/** The units of the drawing; the page stretches it. */
const WIDTH = 400;

/** How a request's time went, as one bar and in words. */
export function RecordTimeline({ record }: { readonly record: ShownRecord }) {
  const { t, clock } = useFrame();
  const stretches = stretchesOf(record, clock());
  const nameOf = ({ what }: Pick<Stretch, "what">) =>
    t(what === "asked" && record.first_byte_at === null ? "record.asked.failed" : `record.${what}`);
  return (
    <section>
      <h3>{t("record.timeline")}</h3>
      <svg
        class="record-bar"
        viewBox={`0 0 ${WIDTH} 12`}
        preserveAspectRatio="none"
        width="100%"
        height="12"
        aria-hidden="true"
      >
        <rect class="ground" width={WIDTH} height="12" />
        {barsOf(stretches, WIDTH).map(({ what, x, width }) => (
          <rect key={what} class={what} x={x} width={Math.max(0, width - 1)} height="12" />
        ))}
      </svg>
      <dl class="pairs">
        {stretches.map((stretch) => (
          <div key={stretch.what}>
            <dt>
              <svg class="swatch record-bar" viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
                <rect class={stretch.what} width="10" height="10" rx="2" />
              </svg>{" "}
              {nameOf(stretch)}
            </dt>
            <dd>{duration(stretch.to - stretch.from)}</dd>
          </div>
        ))}
        <div>
          <dt>{t("record.took")}</dt>
          <dd>
            {record.ended_at === null
              ? t("record.running")
              : duration(Math.max(0, record.ended_at - record.started_at))}
          </dd>
        </div>
      </dl>
    </section>
  );
}
