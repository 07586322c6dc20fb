import { useEffect, useState } from "preact/hooks";
import { Gateways } from "../components/gateways.tsx";
import { Refusals } from "../components/refusals.tsx";
import { Running } from "../components/running.tsx";
import { TodayFigures, ToolDays } from "../components/today.tsx";
import { type PageProps, useFrame } from "../frame.tsx";
import { isStopped } from "../live/live.ts";
import { refusalAdvice } from "../refusal-advice.ts";

export function OverviewPage({ state: { now, link } }: PageProps) {
  const { t } = useFrame();
  return (
    <>
      <div class="page-head">
        <h1>{t("overview.title")}</h1>
        {now === null ? <p class="muted">{t("frame.loading")}</p> : <TodayFigures now={now} />}
      </div>
      {now === null ? null : (
        <div class="overview">
          <div class="overview-main">
            <Running now={now} stopped={isStopped(link)} />
            <Gateways now={now} />
            <ToolDays now={now} />
          </div>
          <Refusals records={now.refusals} />
        </div>
      )}
      <HeardRefusal />
    </>
  );
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
