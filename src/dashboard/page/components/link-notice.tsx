import { clockInWords, spanInWords } from "../format.ts";
import { useFrame, useTime } from "../frame.tsx";
import type { LiveState } from "../live/live.ts";
import { Text } from "./text.tsx";

/** Why nothing new comes, and what to type. */
export function LinkNotice({ state: { link, now } }: { readonly state: LiveState }) {
  const { t } = useFrame();
  const time = useTime();
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
  if (link.state !== "refused" && link.state !== "gone") return null;
  const Heading = now === null ? "h1" : "h2";
  return (
    <section class="box notice stack" data-kind={link.state}>
      <div role="alert">
        <Heading>{t(`frame.${link.state}.title`)}</Heading>
        {link.state === "refused" ? <p>{t("frame.says", { problem: link.problem })}</p> : null}
      </div>
      <p>
        {link.state === "gone" && now !== null
          ? t("frame.gone.text", { span: spanInWords(time - link.since, t), time: clockInWords(now.at) })
          : t("frame.retried")}
      </p>
      {link.state === "gone" ? (
        <ul>
          {(["frame.gone.open", "frame.gone.start", "frame.gone.service"] as const).map((id) => (
            <li key={id}>
              <Text id={id} />
            </li>
          ))}
        </ul>
      ) : null}
    </section>
  );
}
