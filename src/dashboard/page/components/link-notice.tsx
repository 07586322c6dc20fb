import type { Now } from "../../api.ts";
import { clockInWords, spanInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { LiveState } from "../live/live.ts";
import { useTime } from "../use-time.ts";
import { Text } from "./text.tsx";

/** Why nothing new comes, and what to type. */
export function LinkNotice({ state: { link, now } }: { readonly state: LiveState }) {
  const { t } = useFrame();
  if (link.state === "no-session") {
    return (
      <section class="notice" role="alert">
        <h1>{t(`frame.session.${link.why}.title`)}</h1>
        <p>
          <Text id={`frame.session.${link.why}.text`} />
        </p>
        {link.words === null ? null : <p>{t("frame.session.said", { words: link.words })}</p>}
      </section>
    );
  }
  const Heading = now === null ? "h1" : "h2";
  if (link.state === "refused") {
    return (
      <section class="notice" data-kind="refused">
        <div role="alert">
          <Heading>{t("frame.refused.title")}</Heading>
          <p>{t("frame.session.said", { words: link.words })}</p>
        </div>
        <p>{t("frame.refused.text")}</p>
      </section>
    );
  }
  return link.state === "gone" ? <Gone now={now} since={link.since} /> : null;
}

/** It alone needs the time, which counts on each second. */
function Gone({ now, since }: { readonly now: Now | null; readonly since: number }) {
  const { t } = useFrame();
  const time = useTime();
  const Heading = now === null ? "h1" : "h2";
  return (
    <section class="notice" data-kind="gone">
      <div role="alert">
        <Heading>{t("frame.gone.title")}</Heading>
      </div>
      <p>
        {now === null
          ? t("frame.gone.text.first")
          : t("frame.gone.text", { span: spanInWords(time - since, t), time: clockInWords(now.at) })}
      </p>
      <ul>
        <li>
          <Text id="frame.gone.open" />
        </li>
        <li>
          <Text id="frame.gone.start" />
        </li>
        <li>
          <Text id="frame.gone.service" />
        </li>
      </ul>
    </section>
  );
}
