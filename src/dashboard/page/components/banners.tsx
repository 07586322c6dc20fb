import type { Status } from "../../../control/status.ts";
import type { ToolStatus } from "../../../control/tool-status.ts";
import { exact } from "../../../usage/reports/format.ts";
import type { Now } from "../../api.ts";
import { spanInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { hrefOf } from "../route.ts";
import { useTime } from "../use-time.ts";
import { AlarmBanner } from "./alarm-banner.tsx";
import { Banner } from "./banner.tsx";
import { ProblemLines } from "./problem-lines.tsx";

interface BannersProps {
  readonly now: Now | null;
  /** Only what it is, with a link: on pages about something else. */
  readonly brief: boolean;
}

/** What needs the person, the worst first. Nothing is shown where nothing does. */
export function Banners({ now, brief }: BannersProps) {
  const { t } = useFrame();
  if (now === null) return null;
  const { status } = now;
  const errors = status.problems.filter(({ severity }) => severity === "error");
  const warnings = status.problems.filter(({ severity }) => severity === "warning");
  const dead = status.tools.filter(isDead);
  const alarms = status.consoles.flatMap((console) => console.alarms);
  const certain = alarms.filter((alarm) => alarm.certain);
  const suspected = alarms.filter((alarm) => !alarm.certain);
  if (alarms.length + status.problems.length + dead.length === 0 && status.usage.state === "ok") return null;
  return (
    <section class="banners" data-brief={brief} aria-label={t("banner.region")}>
      {certain.map((alarm) => (
        <AlarmBanner key={`${alarm.gateway} ${alarm.key}`} alarm={alarm} />
      ))}
      {status.usage.state === "ok" ? null : <LogBanner usage={status.usage} />}
      {errors.length === 0 ? null : (
        <Banner kind="bad" title={t("banner.config.title")}>
          <ProblemLines file={status.config.path} problems={errors} />
          <p>{t("banner.config.text")}</p>
        </Banner>
      )}
      {dead.length === 0 ? null : (
        <Banner kind="bad" title={t("banner.key.title")}>
          <ul>
            {dead.map((tool) => (
              <DeadKey key={tool.name} tool={tool} />
            ))}
          </ul>
        </Banner>
      )}
      {suspected.map((alarm) => (
        <AlarmBanner key={`${alarm.gateway} ${alarm.key}`} alarm={alarm} />
      ))}
      {warnings.length === 0 ? null : (
        <details class="banner" data-kind="warn">
          <summary>{t("banner.config.warnings", { n: warnings.length })}</summary>
          <ProblemLines file={status.config.path} problems={warnings} />
        </details>
      )}
      {brief ? <a href={hrefOf("now")}>{t("banner.more")}</a> : null}
    </section>
  );
}

/** A disabled or expired tool is as somebody wanted it; these are not. */
function isDead({ state }: ToolStatus): boolean {
  return state === "key-refused" || state === "key-unavailable" || state === "needs-trust";
}

function LogBanner({ usage }: { readonly usage: Status["usage"] }) {
  const { t } = useFrame();
  const time = useTime();
  const span = spanInWords(time - (usage.since ?? time), t);
  return (
    <Banner kind="bad" title={t("banner.log.title")}>
      <p>{t("banner.log.text", { span, why: usage.why ?? t("frame.unknown") })}</p>
      {usage.waiting > 0 ? <p>{t("banner.log.waiting", { n: exact(usage.waiting) })}</p> : null}
      {usage.lost > 0 ? <p>{t("banner.log.lost", { n: exact(usage.lost) })}</p> : null}
      {usage.next === null ? null : <p class="next">{usage.next}</p>}
    </Banner>
  );
}

function DeadKey({ tool }: { readonly tool: ToolStatus }) {
  const { t } = useFrame();
  const time = useTime(10_000);
  const { refused } = tool;
  const cause = refused?.detail ?? (refused?.cause === "unknown" ? null : refused?.cause);
  const words =
    refused === null
      ? `${t(`state.${tool.state}`)}: ${tool.why ?? ""}`
      : t("banner.key.refused", {
          answer: [refused.status, cause ? `(${cause})` : null].filter((part) => part !== null).join(" "),
          key: refused.key,
          n: refused.times,
          span: spanInWords(time - refused.since, t),
        });
  return (
    <li>
      <b>{tool.name}</b>: {words}
      {refused?.words ? (
        <p class="muted">{t("banner.key.words", { words: shortened(refused.words) })}</p>
      ) : null}
      {tool.next === null ? null : <p class="next">{tool.next}</p>}
    </li>
  );
}

function shortened(words: string): string {
  const line = words.replace(/\s+/g, " ").trim();
  return line.length > 200 ? `${line.slice(0, 200)}…` : line;
}
