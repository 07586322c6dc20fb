import type { Now } from "../../api.ts";
import { clockInWords, spanInWords } from "../format.ts";
import { useFrame, useTime } from "../frame.tsx";
import type { LiveState } from "../live/live.ts";
import { Text } from "./text.tsx";

/** Why nothing new comes, and what to type. */
export function LinkNotice({ state: { link, now } }: { readonly state: LiveState }) {
  const { t } = useFrame();
  const Heading = now === null ? "h1" : "h2";
  if (link.state === "no-session")
    return (
      <section class="box notice stack" role="alert">
        <h1>{t(`frame.session.${link.kind}.title`)}</h1>
        <p>
          <Text id={`frame.session.${link.kind}.text`} />
        </p>
        {link.problem === null ? null : <p>{t("frame.says", { problem: link.problem })}</p>}
      </section>
    );
  if (link.state === "refused")
    return (
      <section class="box notice stack" data-kind="refused">
        <div role="alert">
          <Heading>{t("frame.refused.title")}</Heading>
          <p>{t("frame.says", { problem: link.problem })}</p>
        </div>
        <p>{t("frame.retried")}</p>
      </section>
    );
  if (link.state !== "gone") return null;
  return (
    <section class="box notice stack" data-kind="gone">
      <div role="alert">
        <Heading>{t("frame.gone.title")}</Heading>
      </div>
      <p>{now === null ? t("frame.retried") : <GoneSince now={now} since={link.since} />}</p>
      <ul>
        {(["frame.gone.open", "frame.gone.start", "frame.gone.service"] as const).map((id) => (
          <li key={id}>
            <Text id={id} />
          </li>
        ))}
      </ul>
    </section>
  );
}

/** It alone needs the time, which counts on each second. */
function GoneSince({ now, since }: { readonly now: Now; readonly since: number }) {
  const { t } = useFrame();
  const span = spanInWords(useTime(1000) - since, t);
  return <>{t("frame.gone.text", { span, time: clockInWords(now.at) })}</>;
}
