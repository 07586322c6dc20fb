import type { Alarm } from "../../../mirror/report/shape.ts";
import { dollars } from "../../../usage/reports/format.ts";
import { timeInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { hrefOf } from "../route.ts";
import { useTime } from "../use-time.ts";
import { Banner } from "./banner.tsx";
import { Text } from "./text.tsx";

/** A key was used outside keybearer, or may have been: whose, how much, since when, and what to do now. */
export function AlarmBanner({ alarm }: { readonly alarm: Alarm }) {
  const { t } = useFrame();
  const time = useTime(60_000);
  const { key, tools, models, ips, certain, reason } = alarm;
  const level = certain ? "alarm" : "suspected";
  const facts = [
    t("banner.alarm.facts", {
      n: alarm.count,
      money: dollars(alarm.billed_microdollars),
      first: timeInWords(alarm.first_at, time),
      last: timeInWords(alarm.last_at, time),
    }),
    ...(models.length === 0 ? [] : [t("banner.alarm.models", { models: models.join(", ") })]),
    ...(ips.length === 0 ? [] : [t("banner.alarm.ips", { ips: ips.join(", ") })]),
  ];
  const whose =
    tools.length === 0
      ? t(`banner.${level}.no-tool`, { key })
      : t(`banner.${level}.whose`, { key, tools: tools.join(", ") });
  return (
    <Banner kind={certain ? "bad" : "warn"} title={t(`banner.${level}.title`)}>
      <p>
        {whose}
        {facts.join(t("frame.comma"))}
      </p>
      {certain || reason === null ? null : <p>{t("banner.suspected.why", { reason })}</p>}
      <Remedy alarm={alarm} />
      <p class="row">
        <span>
          <Text id="banner.alarm.ack" values={{ gateway: alarm.gateway }} />
        </span>
        <a href={hrefOf("mirror")}>{t("banner.alarm.look")}</a>
      </p>
    </Banner>
  );
}

/** Every tool that has the key needs a new one. */
function Remedy({ alarm: { certain, replaced, tools } }: { readonly alarm: Alarm }) {
  const level = certain ? "alarm" : "suspected";
  if (replaced || tools.length === 0)
    return (
      <p>
        <Text id={certain && replaced ? "banner.alarm.replaced" : `banner.${level}.delete`} />
      </p>
    );
  return tools.map((tool) => (
    <p key={tool}>
      <Text id={`banner.${level}.rotate`} values={{ tool }} />
    </p>
  ));
}
