import { dollars, exact } from "../../../../core/units.ts";
import type { MirrorReport } from "../../../../mirror/report/shape.ts";
import { useAct } from "../../act.ts";
import { agoInWords, dayOf, spanInWords, timeInWords } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";
import { headlineOf, isFarAbove, isSkewed, standingOf } from "./mirror-state.ts";

interface ConsoleProps {
  readonly report: MirrorReport;
  readonly now: number;
}

/** One gateway's console in words: the headline, what keeps it from being simply fine, and what cannot be seen at all. */
export function MirrorConsole({ report, now }: ConsoleProps) {
  const { t } = useFrame();
  const act = useAct();
  const standing = standingOf(report);
  return (
    <section class="panel mirror-console" data-standing={standing} aria-label={report.gateway}>
      <header>
        <h2>
          {t("mirror.console", { gateway: report.gateway, kind: kindInWords(report, t), url: report.url })}
        </h2>
        <span class="standing" data-standing={standing}>
          {t(`mirror.standing.${standing}`)}
        </span>
        <button type="button" class="plain" onClick={() => act({ kind: "sync", gateway: report.gateway })}>
          {t("mirror.sync")}
          <span class="visually-hidden"> {report.gateway}</span>
        </button>
      </header>
      <div class="body stack">
        <p class="mirror-headline">{headlineInWords(report, t)}</p>
        <Trouble report={report} now={now} />
        {report.unseen_machines.length === 0 ? null : <p>{unseenInWords(report, now, t)}</p>}
        <p class="muted">
          {recordsInWords(report, t)} {lagInWords(report, now, t)}
        </p>
        {report.elsewhere.length === 0 ? null : <Elsewhere report={report} />}
      </div>
    </section>
  );
}

function kindInWords({ kind, detected }: MirrorReport, t: Translate): string {
  if (kind === null) return t("mirror.kind.unknown");
  return detected ? t("mirror.kind.detected", { kind }) : kind;
}

/** 1,204 rows: 1,198 by id, 6 presumed, 0 foreign. Watched since 2026-11-03. */
function headlineInWords(report: MirrorReport, t: Translate): string {
  const parts = headlineOf(report);
  if (parts === null) return t("mirror.unread");
  const words = parts.map(({ name, count }) =>
    count === null ? t("mirror.part.blind") : t(`mirror.part.${name}`, { n: exact(count) }),
  );
  const rows = t("mirror.rows", { n: exact(report.rows.total), parts: words.join(t("mirror.part.joint")) });
  const since = report.watched_since;
  const watched = since === null ? t("mirror.watched.not") : t("mirror.watched", { day: dayOf(since) });
  return `${rows}${t("mirror.part.stop")}${watched}`;
}

function recordsInWords({ records }: MirrorReport, t: Translate): string {
  const { matched, differs, pending, missing } = records;
  return t("mirror.records", {
    matched: exact(matched),
    differs: exact(differs),
    pending: exact(pending),
    missing: exact(missing),
  });
}

function lagInWords(report: MirrorReport, now: number, t: Translate): string {
  const { last_sync: read, newest_row: newest, skew, account } = report;
  const joint = t("mirror.part.joint");
  return `${[
    read === null ? t("mirror.last-sync.never") : t("mirror.last-sync", { ago: agoInWords(read, now, t) }),
    newest === null ? t("mirror.newest.none") : t("mirror.newest", { span: spanInWords(now - newest, t) }),
    ...(isSkewed(skew)
      ? [t(skew > 0 ? "mirror.skew.ahead" : "mirror.skew.behind", { span: spanInWords(Math.abs(skew), t) })]
      : []),
    ...(account === null || account.balance === null
      ? []
      : [t("mirror.balance", { money: dollars(account.balance) })]),
  ].join(joint)}${t("mirror.part.stop").trim()}`;
}

/** What keeps it from being simply fine. Stale numbers must not pass for news: what a thief did since is not in them. */
function Trouble({ report, now }: ConsoleProps) {
  const { t } = useFrame();
  const { state, why, next, last_sync: read, next_sync: again } = report;
  if (state === "ok" && why === null) return null;
  const isStale = read !== null && !["ok", "cannot-see", "waiting", "syncing"].includes(state);
  return (
    <div class="mirror-trouble">
      <p>{whyInWords(report, t)}</p>
      {again === null || state === "ok" || again <= now ? null : (
        <p>{t("mirror.retry", { when: t("frame.in", { span: spanInWords(again - now, t) }) })}</p>
      )}
      {isStale ? <p>{t("mirror.since-then", { ago: agoInWords(read, now, t) })}</p> : null}
      {next === null ? null : (
        <p>
          {t("mirror.next")}
          <code>{next}</code>
        </p>
      )}
    </div>
  );
}

function whyInWords({ state, why, progress }: MirrorReport, t: Translate): string {
  if (state === "syncing") {
    if (progress === null) return t("mirror.syncing");
    const { done, total } = progress;
    return total === null
      ? t("mirror.syncing.rows", { n: exact(done) })
      : t("mirror.syncing.of", { done: exact(done), total: exact(total) });
  }
  if (state === "cannot-see") return why === null ? t("mirror.standing.blind") : t("mirror.why", { why });
  return state === "ok" || why === null ? (why ?? state) : t("mirror.why.other", { state, why });
}

/** Cannot see: laptop since 14:02, desktop since 11-03 09:30 */
function unseenInWords({ unseen_machines }: MirrorReport, now: number, t: Translate): string {
  const machines = unseen_machines.map(({ machine, since }) =>
    since === null
      ? t("mirror.unseen.joined", { machine })
      : t("mirror.unseen.since", { machine, time: timeInWords(since, now) }),
  );
  return t("mirror.unseen", { machines: machines.join(t("mirror.part.joint")) });
}

function Elsewhere({ report }: { readonly report: MirrorReport }) {
  const { t } = useFrame();
  return (
    <div>
      <h3>{t("mirror.elsewhere")}</h3>
      <ul class="mirror-blind">
        {report.elsewhere.map((use) => (
          <li key={`${use.tool} ${use.key}`}>
            {t("mirror.elsewhere.text", {
              tool: use.tool,
              key: use.key,
              n: exact(use.day),
              money: dollars(use.day_microdollars),
              usual: exact(use.usual < 10 ? Math.round(use.usual * 10) / 10 : Math.round(use.usual)),
              usualMoney: dollars(Math.round(use.usual_microdollars)),
            })}
            {isFarAbove(use) ? <strong> {t("mirror.elsewhere.far")}</strong> : null}
          </li>
        ))}
      </ul>
    </div>
  );
}
