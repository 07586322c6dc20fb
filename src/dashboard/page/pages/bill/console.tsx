import { dayName, dollars, exact } from "../../../../core/units.ts";
import { isFarAbove, isSkewed, roundedUse, shownCounts } from "../../../../mirror/report/notable.ts";
import type { ElsewhereUse, KeyReport, MirrorReport } from "../../../../mirror/report/shape.ts";
import type { MirrorAnswer } from "../../../bill.ts";
import { ActionButton } from "../../components/action-dialog.tsx";
import { Panel, State } from "../../components/panel.tsx";
import { type Column, column, numberColumn, TablePanel } from "../../components/table.tsx";
import { Ago, NextStep } from "../../components/text.tsx";
import { agoInWords, joined, orDash, spanInWords, timeInWords, whenInWords } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import { groupInWords, quotaInWords, windowsInWords } from "../../limits.ts";
import type { Translate } from "../../messages/messages.ts";
import { standingOf } from "./state.ts";

interface ConsoleProps {
  readonly report: MirrorReport;
  readonly now: number;
}

/** One gateway's console in words: the headline, what keeps it from being simply fine, and what cannot be seen at all. */
export function ConsolePanel({ report, now }: ConsoleProps) {
  const { t } = useFrame();
  const { gateway, url, kind, detected, records, unseen_machines: unseen, elsewhere } = report;
  const standing = standingOf(report);
  const kindName = detected ? t("bill.kind.detected", { kind: kind ?? "" }) : kind;
  const counts = Object.entries(records).map(([name, count]) => [name, exact(count)]);
  return (
    <Panel
      name={`bill-console ${standing}`}
      title={t("bill.console", { gateway, kind: kindName ?? t("bill.kind.unknown"), url })}
      aside={
        <>
          <State state={standing}>{t(`bill.standing.${standing}`)}</State>
          <ActionButton action={{ kind: "sync", gateway }} what={gateway}>
            {t("bill.sync")}
          </ActionButton>
        </>
      }
    >
      <div class="body stack">
        <p>{headlineInWords(report, t)}</p>
        <Problem report={report} now={now} />
        {unseen.length === 0 ? null : <p>{unseenInWords(report, now, t)}</p>}
        <p class="muted">{t("bill.records", Object.fromEntries(counts))}</p>
        <p class="muted">{lagInWords(report, now, t)}</p>
        {elsewhere.map((use) => (
          <p key={`${use.tool} ${use.key}`}>
            {elsewhereInWords(use, t)} {isFarAbove(use) ? <strong>{t("bill.elsewhere.far")}</strong> : null}
          </p>
        ))}
      </div>
    </Panel>
  );
}

/** 1,204 rows: 1,198 by id, 6 presumed, 0 foreign. Watched since 2026-11-03. */
function headlineInWords(report: MirrorReport, t: Translate): string {
  const { rows, watched_since: since } = report;
  const counts = shownCounts(report);
  if (counts === null) return t("bill.unread");
  const parts = counts.map(({ name, count }) =>
    count === null ? t("bill.part.blind") : t(`bill.part.${name}`, { n: exact(count) }),
  );
  const watched = since === null ? t("bill.watched.not") : t("bill.watched", { day: dayName(since) });
  return t("bill.rows", { n: exact(rows.total), parts: joined(parts, t), watched });
}

function lagInWords(report: MirrorReport, now: number, t: Translate): string {
  const { last_sync: read, newest_row: newest, skew, account } = report;
  const balance = account?.balance ?? null;
  const facts = [
    read === null ? t("bill.last-sync.never") : t("bill.last-sync", { ago: agoInWords(read, now, t) }),
    newest === null ? t("bill.newest.none") : t("bill.newest", { span: spanInWords(now - newest, t) }),
    balance === null ? null : t("bill.balance", { money: dollars(balance) }),
  ];
  if (isSkewed(skew)) {
    const span = spanInWords(Math.abs(skew), t);
    facts.push(t(skew > 0 ? "bill.skew.ahead" : "bill.skew.behind", { span }));
  }
  return joined(facts, t);
}

/** What keeps it from being simply fine. Old numbers must look old: later use of a stolen key is not in them. */
function Problem({ report, now }: ConsoleProps) {
  const { t } = useFrame();
  const { state, why, next, last_sync: read, next_sync: again } = report;
  if (state === "ok" && why === null) return null;
  const isStale = read !== null && !["ok", "cannot-see", "waiting", "syncing"].includes(state);
  return (
    <div class="box stack" data-kind="warn">
      <p>{problemInWords(report, t)}</p>
      {again === null || state === "ok" || again <= now ? null : (
        <p>{t("bill.retry", { when: whenInWords(again, now, t) })}</p>
      )}
      {isStale ? <p>{t("bill.since-then", { ago: agoInWords(read, now, t) })}</p> : null}
      <NextStep text={next} />
    </div>
  );
}

function problemInWords({ state, why, progress }: MirrorReport, t: Translate): string {
  if (state === "syncing" && progress !== null) {
    const { done, total } = progress;
    return total === null
      ? t("bill.syncing.rows", { n: exact(done) })
      : t("bill.syncing.of", { done: exact(done), total: exact(total) });
  }
  const name = t(`console.${state}`);
  if (why === null) return name;
  return state === "ok" ? why : t("bill.why", { state: name, problem: why });
}

/** Cannot see: laptop since 14:02, desktop since 11-03 09:30 */
function unseenInWords({ unseen_machines }: MirrorReport, now: number, t: Translate): string {
  const machines = unseen_machines.map(({ machine, since }) =>
    since === null
      ? t("bill.unseen.joined", { machine })
      : t("bill.unseen.since", { machine, time: timeInWords(since, now) }),
  );
  return t("bill.unseen", { machines: joined(machines, t) });
}

/** How much a key was used elsewhere, where that is so on purpose. */
function elsewhereInWords(use: ElsewhereUse, t: Translate): string {
  return t("bill.elsewhere", {
    tool: use.tool,
    key: use.key,
    n: exact(use.day),
    money: dollars(use.day_microdollars),
    usual: exact(roundedUse(use.usual)),
    usualMoney: dollars(Math.round(use.usual_microdollars)),
  });
}

interface KeysProps {
  readonly keys: readonly KeyReport[];
  readonly problems: MirrorAnswer["keys_problems"];
}

/** The console's key list beside the tools that hold each key here. */
export function ConsoleKeys({ keys, problems }: KeysProps) {
  const { t } = useFrame();
  const ago = (at: number) => <Ago at={at} />;
  const columns: Column<KeyReport>[] = [
    column(t("word.name"), ({ name }) => name),
    column(t("word.gateway"), ({ gateway }) => gateway),
    column(t("word.key"), ({ key }) => orDash(key, (shown) => <code>{shown}</code>)),
    column(t("bill.keys.tool"), ({ tools }) =>
      tools.length === 0 ? <span class="muted">{t("bill.keys.not-held")}</span> : tools.join(", "),
    ),
    column(t("word.state"), ({ state }) => <State state={state}>{t(`bill.keys.state.${state}`)}</State>),
    column(t("usage.by.group"), (key) => groupInWords(key) ?? "–"),
    numberColumn(
      t("bill.keys.quota"),
      (key) => quotaInWords(key, t) ?? (key.unlimited ? t("bill.keys.unlimited") : "–"),
    ),
    column(t("bill.keys.windows"), (key) => windowsInWords(key, t) || "–"),
    column(t("word.expires"), ({ expires_at: at }) => orDash(at, dayName)),
    column(t("word.last-use"), ({ last_used_at: at }) => orDash(at, ago)),
    column(t("word.as-of"), ({ as_of: at }) => orDash(at, ago)),
  ];
  if (keys.some(({ models = [] }) => models.length > 0))
    columns.push(
      column(t("bill.keys.models"), ({ models }) => models?.join(", ") || t("bill.keys.models.all")),
    );
  return (
    <TablePanel
      name="bill-keys"
      title={t("bill.keys")}
      columns={columns}
      rows={keys}
      keyOf={({ gateway, ref }) => `${gateway} ${ref}`}
      empty={problems.length > 0 ? null : t("bill.keys.empty")}
    >
      {problems.map(({ gateway, why, next }) => (
        <div class="body stack" key={gateway}>
          <p>{t("bill.keys.problem", { gateway, problem: why })}</p>
          <NextStep text={next} />
        </div>
      ))}
    </TablePanel>
  );
}
