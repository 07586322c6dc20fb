import { useEffect, useState } from "preact/hooks";
import type { Now } from "../../api.ts";
import { Cards } from "../components/cards.tsx";
import { FirstSteps } from "../components/first-steps.tsx";
import { Gateways } from "../components/gateways.tsx";
import { LastDay } from "../components/last-day.tsx";
import { Refusals } from "../components/refusals.tsx";
import { Sessions } from "../components/sessions.tsx";
import { TodayFigures } from "../components/today.tsx";
import { type PageProps, useFrame } from "../frame.tsx";
import { isStopped } from "../live/live.ts";
import { refusalAdvice } from "../refusal-advice.ts";

/** What needs the person first, then what happens now. */
export function OverviewPage({ state: { now, link } }: PageProps) {
  const { t } = useFrame();
  return (
    <>
      <h1>{t("overview.title")}</h1>
      {now === null ? (
        <p class="muted">{t("frame.loading")}</p>
      ) : (
        <Content now={now} stopped={isStopped(link)} />
      )}
      <HeardRefusal />
    </>
  );
}

function Content({ now, stopped }: { readonly now: Now; readonly stopped: boolean }) {
  const isUsed = wasCalled(now);
  return (
    <>
      <Cards now={now} />
      {isUsed ? (
        <>
          <TodayFigures now={now} />
          <LastDay />
          <Sessions now={now} stopped={stopped} />
        </>
      ) : (
        <FirstSteps status={now.status} />
      )}
      <Gateways now={now} />
      {isUsed ? <Refusals records={now.refusals} /> : null}
    </>
  );
}

function wasCalled({ status, running_total: running, today, refusals }: Now): boolean {
  // A log that cannot be read now may have requests.
  if (running > 0 || refusals.length > 0 || today === null || today.total.requests > 0) return true;
  return today.forecast !== null || status.tools.some((tool) => tool.last_use !== null);
}

/** Who cannot see a refusal come in hears it; everything else on this page changes too often to be read out. */
function HeardRefusal() {
  const { live, t } = useFrame();
  const [words, setWords] = useState("");
  useEffect(
    () =>
      live.onRecord((record) => {
        const advice = record.end === "refused" ? refusalAdvice(record) : null;
        if (advice === null) return;
        setWords(
          t("overview.refusals.heard", {
            tool: record.tool ?? t("overview.stranger"),
            words: t(advice.words),
          }),
        );
      }),
    [live, t],
  );
  return (
    <p class="visually-hidden" aria-live="polite">
      {words}
    </p>
  );
}
