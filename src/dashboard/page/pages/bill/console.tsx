import { dollars, exact } from "../../../../core/units.ts";
import type { MirrorReport } from "../../../../mirror/report/shape.ts";
import { ActionButton } from "../../components/action-button.tsx";
import { agoInWords, dayOf, spanInWords, timeInWords } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";
import { headlineOf, isFarAbove, isSkewed, standingOf } from "./state.ts";

interface ConsoleProps {
  readonly report: MirrorReport;
  readonly now: number;
}

/** One gateway's console in words: the headline, what keeps it from being simply fine, and what cannot be seen at all. */
export function ConsolePanel({ report, now }: ConsoleProps) {
  const { t } = useFrame();
  const standing = standingOf(report);
  return (
    <section class="panel bill-console" data-standing={standing} aria-label={report.gateway}>
      <header>
        <h2>
          {t("bill.console", { gateway: report.gateway, kind: kindInWords(report, t), url: report.url })}
        </h2>
        <span class="standing" data-standing={standing}>
          {t(`bill.standing.${standing}`)}
        </span>
        <ActionButton action={{ kind: "sync", gateway: report.gateway }} what={report.gateway}>
          {t("bill.sync")}
        </ActionButton>
      </header>
      <div class="body stack">
        <p class="bill-headline">{headlineInWords(report, t)}</p>
        <Problem report={report} now={now} />
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
  if (kind === null) return t("bill.kind.unknown");
  return detected ? t("bill.kind.detected", { kind }) : kind;
}

/** 1,204 rows: 1,198 by id, 6 presumed, 0 foreign. Watched since 2026-11-03. */
function headlineInWords(report: MirrorReport, t: Translate): string {
  const parts = headlineOf(report);
  if (parts === null) return t("bill.unread");
  const words = parts.map(({ name, count }) =>
    count === null ? t("bill.part.blind") : t(`bill.part.${name}`, { n: exact(count) }),
  );
  const rows = t("bill.rows", { n: exact(report.rows.total), parts: words.join(t("bill.part.joint")) });
  const since = report.watched_since;
  const watched = since === null ? t("bill.watched.not") : t("bill.watched", { day: dayOf(since) });
  return `${rows}${t("bill.part.stop")}${watched}`;
}

function recordsInWords({ records }: MirrorReport, t: Translate): string {
  const { matched, differs, pending, missing } = records;
  return t("bill.records", {
    matched: exact(matched),
    differs: exact(differs),
    pending: exact(pending),
    missing: exact(missing),
  });
}

function lagInWords(report: MirrorReport, now: number, t: Translate): string {
  const { last_sync: read, newest_row: newest, skew, account } = report;
  const joint = t("bill.part.joint");
  return `${[
    read === null ? t("bill.last-sync.never") : t("bill.last-sync", { ago: agoInWords(read, now, t) }),
    newest === null ? t("bill.newest.none") : t("bill.newest", { span: spanInWords(now - newest, t) }),
    ...(isSkewed(skew)
      ? [t(skew > 0 ? "bill.skew.ahead" : "bill.skew.behind", { span: spanInWords(Math.abs(skew), t) })]
      : []),
    ...(account === null || account.balance === null
      ? []
      : [t("bill.balance", { money: dollars(account.balance) })]),
  ].join(joint)}${t("bill.part.stop").trim()}`;
}

/** What keeps it from being simply fine. Old numbers must look old: later use of a stolen key is not in them. */
function Problem({ report, now }: ConsoleProps) {
  const { t } = useFrame();
  const { state, why, next, last_sync: read, next_sync: again } = report;
  if (state === "ok" && why === null) return null;
  const isStale = read !== null && !["ok", "cannot-see", "waiting", "syncing"].includes(state);
  return (
    <div class="bill-problem">
      <p>{whyInWords(report, t)}</p>
      {again === null || state === "ok" || again <= now ? null : (
        <p>{t("bill.retry", { when: t("frame.in", { span: spanInWords(again - now, t) }) })}</p>
      )}
      {isStale ? <p>{t("bill.since-then", { ago: agoInWords(read, now, t) })}</p> : null}
      {next === null ? null : (
        <p>
          {t("bill.next")}
          <code>{next}</code>
        </p>
      )}
    </div>
  );
}

function whyInWords({ state, why, progress }: MirrorReport, t: Translate): string {
  if (state === "syncing") {
    if (progress === null) return t("bill.syncing");
    const { done, total } = progress;
    return total === null
      ? t("bill.syncing.rows", { n: exact(done) })
      : t("bill.syncing.of", { done: exact(done), total: exact(total) });
  }
  if (state === "cannot-see") return why === null ? t("bill.standing.blind") : t("bill.why", { why });
  return state === "ok" || why === null ? (why ?? state) : t("bill.why.other", { state, why });
}

/** Cannot see: laptop since 14:02, desktop since 11-03 09:30 */
function unseenInWords({ unseen_machines }: MirrorReport, now: number, t: Translate): string {
  const machines = unseen_machines.map(({ machine, since }) =>
    since === null
      ? t("bill.unseen.joined", { machine })
      : t("bill.unseen.since", { machine, time: timeInWords(since, now) }),
  );
  return t("bill.unseen", { machines: machines.join(t("bill.part.joint")) });
}

function Elsewhere({ report }: { readonly report: MirrorReport }) {
  const { t } = useFrame();
  return (
    <div>
      <h3>{t("bill.elsewhere")}</h3>
      <ul class="bill-blind">
        {report.elsewhere.map((use) => (
          <li key={`${use.tool} ${use.key}`}>
            {t("bill.elsewhere.text", {
              tool: use.tool,
              key: use.key,
              n: exact(use.day),
              money: dollars(use.day_microdollars),
              usual: exact(use.usual < 10 ? Math.round(use.usual * 10) / 10 : Math.round(use.usual)),
              usualMoney: dollars(Math.round(use.usual_microdollars)),
            })}
            {isFarAbove(use) ? <strong> {t("bill.elsewhere.far")}</strong> : null}
          </li>
        ))}
      </ul>
    </div>
  );
}
