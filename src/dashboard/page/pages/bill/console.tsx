import { dayName, dollars, exact } from "../../../../core/units.ts";
import { consoleFigures } from "../../../../limits/format.ts";
import { isFarAbove, isSkewed, roundedUse, shownCounts } from "../../../../mirror/report/notable.ts";
import type { KeyReport, MirrorReport } from "../../../../mirror/report/shape.ts";
import type { KeysProblem } from "../../../api.ts";
import { ActionButton } from "../../components/action-dialog.tsx";
import { factorInWords } from "../../components/compared.ts";
import { Panel, State } from "../../components/panel.tsx";
import { type Column, column, numberColumn, TablePanel } from "../../components/table.tsx";
import { NextStep } from "../../components/text.tsx";
import { agoInWords, spanInWords, timeInWords } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";
import { standingOf } from "./state.ts";

interface ConsoleProps {
  readonly report: MirrorReport;
  readonly now: number;
}

/** One gateway's console in words: the headline, what keeps it from being simply fine, and what cannot be seen at all. */
export function ConsolePanel({ report, now }: ConsoleProps) {
  const { t } = useFrame();
  const standing = standingOf(report);
  return (
    <Panel
      name={`bill-console ${standing}`}
      title={t("bill.console", { gateway: report.gateway, kind: kindInWords(report, t), url: report.url })}
      aside={
        <>
          <State state={standing}>{t(`bill.standing.${standing}`)}</State>
          <ActionButton action={{ kind: "sync", gateway: report.gateway }} what={report.gateway}>
            {t("bill.sync")}
          </ActionButton>
        </>
      }
    >
      <div class="body stack">
        <p>{headlineInWords(report, t)}</p>
        <Problem report={report} now={now} />
        {report.unseen_machines.length === 0 ? null : <p>{unseenInWords(report, now, t)}</p>}
        <p class="muted">
          {recordsInWords(report, t)} {lagInWords(report, now, t)}
        </p>
        {report.elsewhere.length === 0 ? null : <Elsewhere report={report} />}
      </div>
    </Panel>
  );
}

function kindInWords({ kind, detected }: MirrorReport, t: Translate): string {
  if (kind === null) return t("bill.kind.unknown");
  return detected ? t("bill.kind.detected", { kind }) : kind;
}

/** 1,204 rows: 1,198 by id, 6 presumed, 0 foreign. Watched since 2026-11-03. */
function headlineInWords(report: MirrorReport, t: Translate): string {
  const parts = shownCounts(report);
  if (parts === null) return t("bill.unread");
  const words = parts.map(({ name, count }) =>
    count === null ? t("bill.part.blind") : t(`bill.part.${name}`, { n: exact(count) }),
  );
  const rows = t("bill.rows", { n: exact(report.rows.total), parts: words.join(t("frame.comma")) });
  const since = report.watched_since;
  const watched = since === null ? t("bill.watched.not") : t("bill.watched", { day: dayName(since) });
  return `${rows}${t("bill.part.stop")}${watched}`;
}

function recordsInWords({ records }: MirrorReport, t: Translate): string {
  const counts = Object.entries(records).map(([name, count]) => [name, exact(count)]);
  return t("bill.records", Object.fromEntries(counts));
}

function lagInWords(report: MirrorReport, now: number, t: Translate): string {
  const { last_sync: read, newest_row: newest, skew, account } = report;
  const balance = account?.balance ?? null;
  const facts = [
    read === null ? t("bill.last-sync.never") : t("bill.last-sync", { ago: agoInWords(read, now, t) }),
    newest === null ? t("bill.newest.none") : t("bill.newest", { span: spanInWords(now - newest, t) }),
  ];
  if (isSkewed(skew))
    facts.push(
      t(skew > 0 ? "bill.skew.ahead" : "bill.skew.behind", { span: spanInWords(Math.abs(skew), t) }),
    );
  if (balance !== null) facts.push(t("bill.balance", { money: dollars(balance) }));
  return `${facts.join(t("frame.comma"))}${t("bill.part.stop").trim()}`;
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
        <p>{t("bill.retry", { when: t("frame.in", { span: spanInWords(again - now, t) }) })}</p>
      )}
      {isStale ? <p>{t("bill.since-then", { ago: agoInWords(read, now, t) })}</p> : null}
      <NextStep text={next} />
    </div>
  );
}

function problemInWords({ state, why, progress }: MirrorReport, t: Translate): string {
  if (state === "syncing") {
    if (progress === null) return t("bill.syncing");
    const { done, total } = progress;
    return total === null
      ? t("bill.syncing.rows", { n: exact(done) })
      : t("bill.syncing.of", { done: exact(done), total: exact(total) });
  }
  if (state === "cannot-see")
    return why === null ? t("bill.standing.blind") : t("bill.why", { problem: why });
  return state === "ok" || why === null
    ? (why ?? t(`console.${state}`))
    : t("bill.why.other", { state: t(`console.${state}`), problem: why });
}

/** Cannot see: laptop since 14:02, desktop since 11-03 09:30 */
function unseenInWords({ unseen_machines }: MirrorReport, now: number, t: Translate): string {
  const machines = unseen_machines.map(({ machine, since }) =>
    since === null
      ? t("bill.unseen.joined", { machine })
      : t("bill.unseen.since", { machine, time: timeInWords(since, now) }),
  );
  return t("bill.unseen", { machines: machines.join(t("frame.comma")) });
}

function Elsewhere({ report }: { readonly report: MirrorReport }) {
  const { t } = useFrame();
  return (
    <div>
      <h3>{t("bill.elsewhere")}</h3>
      <ul class="muted">
        {report.elsewhere.map((use) => (
          <li key={`${use.tool} ${use.key}`}>
            {t("bill.elsewhere.text", {
              tool: use.tool,
              key: use.key,
              n: exact(use.day),
              money: dollars(use.day_microdollars),
              usual: exact(roundedUse(use.usual)),
              usualMoney: dollars(Math.round(use.usual_microdollars)),
            })}
            {isFarAbove(use) ? <strong> {t("bill.elsewhere.far")}</strong> : null}
          </li>
        ))}
      </ul>
    </div>
  );
}

interface KeysProps {
  readonly keys: readonly KeyReport[];
  readonly problems: readonly KeysProblem[];
  readonly now: number;
}

/** The console's key list beside the tools that hold each key here. */
export function ConsoleKeys({ keys, problems, now }: KeysProps) {
  const { t } = useFrame();
  const several = keys.some(({ gateway }) => gateway !== keys[0]?.gateway);
  const limited = keys.some(({ models = [] }) => models.length > 0);
  return (
    <TablePanel
      name="bill-keys one-line"
      title={t("bill.keys")}
      columns={columnsOf(several, limited, now, t)}
      rows={keys}
      keyOf={({ gateway, ref }) => `${gateway} ${ref}`}
      empty={problems.length > 0 ? null : t("bill.keys.empty")}
    >
      {problems.map(({ gateway, why, next }) => (
        <p class="body" key={gateway}>
          {t("bill.keys.problem", { gateway, problem: why })} {next === null ? null : <code>{next}</code>}
        </p>
      ))}
    </TablePanel>
  );
}

function columnsOf(several: boolean, limited: boolean, now: number, t: Translate): Column<KeyReport>[] {
  const ago = (time: number | null) => (time === null ? "–" : agoInWords(time, now, t));
  const gateway = column<KeyReport>(t("word.gateway"), (key) => key.gateway);
  const models = column<KeyReport>(
    t("bill.keys.models"),
    (key) => key.models?.join(", ") || t("bill.keys.models.all"),
  );
  return [
    column(t("word.name"), ({ name }) => name),
    ...(several ? [gateway] : []),
    column(t("word.key"), ({ key }) => (key === null ? "–" : <code>{key}</code>)),
    column(t("bill.keys.tool"), ({ tools }) =>
      tools.length === 0 ? <span class="muted">{t("bill.keys.not-held")}</span> : tools.join(", "),
    ),
    column(t("word.state"), ({ state }) => <State state={state}>{t(`bill.keys.state.${state}`)}</State>),
    column(
      t("usage.by.group"),
      ({ group, multiplier }) => `${group ?? "–"} ${multiplier === null ? "" : factorInWords(multiplier)}`,
    ),
    numberColumn(t("bill.keys.quota"), (key) => quotaOf(key, t)),
    column(t("bill.keys.windows"), windowsOf),
    ...(limited ? [models] : []),
    column(t("word.expires"), ({ expires_at: time }) => (time === null ? "–" : dayName(time))),
    column(t("word.last-use"), ({ last_used_at: time }) => ago(time)),
    column(t("word.as-of"), ({ as_of: time }) => ago(time)),
  ];
}

function windowsOf({ windows }: KeyReport): string {
  const words = windows.map(({ window, used, most }) => {
    const figures = consoleFigures(used, most);
    return `${window} ${figures.used}/${figures.max}`;
  });
  return words.join(", ") || "–";
}

function quotaOf({ quota, unlimited, quota_used: used }: KeyReport, t: Translate): string {
  if (quota === null) {
    const without = t(unlimited ? "bill.keys.unlimited" : "bill.keys.state.unknown");
    return used === null ? without : `${dollars(used)} / ${without}`;
  }
  const figures = consoleFigures(used, quota);
  return used === null ? figures.max : `${figures.used} / ${figures.max}`;
}
