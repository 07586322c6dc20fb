import type { ConfigProblem } from "../../../config/problems.ts";
import type { Status } from "../../../control/status.ts";
import type { ToolStatus } from "../../../control/tool-status.ts";
import { dollars, exact } from "../../../core/units.ts";
import type { Alarm } from "../../../mirror/report/shape.ts";
import type { Now } from "../../api.ts";
import { spanInWords, timeInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { hrefOf } from "../route.ts";
import { useTime } from "../use-time.ts";
import { Banner } from "./banner.tsx";
import { Text } from "./text.tsx";

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
      {brief ? <a href={hrefOf("overview")}>{t("banner.more")}</a> : null}
    </section>
  );
}

/** A disabled or expired tool is as its owner set it; these are not. */
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

/** A key was used outside keybearer, or may have been: whose, how much, since when, and what to do now. */
function AlarmBanner({ alarm }: { readonly alarm: Alarm }) {
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
    ...(models.length === 0
      ? []
      : [t("banner.alarm.models", { n: models.length, models: models.join(", ") })]),
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
        <a href={hrefOf("bill")}>{t("banner.alarm.look")}</a>
      </p>
    </Banner>
  );
}

/** Every tool that has the key needs a new one. */
function Remedy({ alarm: { certain, replaced, unlisted, tools, key } }: { readonly alarm: Alarm }) {
  const level = certain ? "alarm" : "suspected";
  if (replaced || tools.length === 0)
    return (
      <p>
        <Text
          id={
            unlisted
              ? "banner.alarm.unlisted"
              : certain && replaced
                ? "banner.alarm.replaced"
                : `banner.${level}.delete`
          }
          values={{ key }}
        />
      </p>
    );
  return tools.map((tool) => (
    <p key={tool}>
      <Text id={`banner.${level}.rotate`} values={{ tool }} />
    </p>
  ));
}

interface ProblemLinesProps {
  readonly file: string;
  readonly problems: readonly ConfigProblem[];
}

/** Each problem of config.yaml as `keybearer check` prints it: place, message, the line with a caret, and the hint. */
function ProblemLines({ file, problems }: ProblemLinesProps) {
  return (
    <ul class="problems">
      {problems.map(({ path, line, column, message, hint, excerpt }) => (
        <li key={`${line} ${column} ${path} ${message}`}>
          <p>
            <code>{line > 0 ? `${file}:${line}:${column}` : file}</code> {path === "" ? "" : `${path}: `}
            {message}
          </p>
          {excerpt === null ? null : <pre>{excerpt}</pre>}
          {hint === null ? null : <p class="next">{hint}</p>}
        </li>
      ))}
    </ul>
  );
}
