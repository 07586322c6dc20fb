import { dollars } from "../../../core/units.ts";
import { consoleFigures, statusFigures } from "../../../limits/format.ts";
import type { ToolConsoleFacts } from "../../../mirror/report/shape.ts";
import type { ToolSettings, ToolsAnswer } from "../../api.ts";
import { useAct } from "../act.ts";
import { agoInWords, dayOf, momentInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { Translate } from "../messages/messages.ts";
import { useTime } from "../use-time.ts";
import { Bar, Gauge } from "./gauge.tsx";

interface ToolRowsProps {
  readonly tool: ToolSettings;
  readonly answer: ToolsAnswer;
  readonly onUse: (name: string) => void;
}

/** One tool: what it is in one row, and below it what limits it and what is wrong with it, where there is any. */
export function ToolRows({ tool, answer, onUse }: ToolRowsProps) {
  const { t, language } = useFrame();
  const time = useTime(10_000);
  const { last_use: used, expires } = tool;
  return (
    <tbody>
      <tr>
        <th scope="row">
          {tool.name}
          {answer.tools.some(({ gateway }) => gateway !== tool.gateway) ? (
            <div class="muted small">{tool.gateway}</div>
          ) : null}
        </th>
        <td data-label={t("tools.state")}>
          <State tool={tool} />
        </td>
        <td class="tool-group" data-label={t("tools.group")}>
          <Group tool={tool} answer={answer} />
        </td>
        <td class="tool-key" data-label={t("tools.key")}>
          <div>{tool.key === null ? t("tools.key.none") : <code>{tool.key}</code>}</div>
          {/* The fingerprint above already describes the key itself. */}
          <div class="muted small">{tool.source.replace(` (${tool.key})`, "")}</div>
        </td>
        <td class="tool-quota" data-label={t("tools.quota")}>
          <Quota tool={tool} />
        </td>
        <td
          class="tool-date"
          data-label={t("tools.expires")}
          title={expires === null ? undefined : momentInWords(expires, language)}
        >
          {/* A day in the file holds through its end, and the day after would not be recognised as it. */}
          {expires === null ? t("tools.expires.never") : dayOf(expires - 1)}
        </td>
        <td
          class="tool-date"
          data-label={t("tools.last-use")}
          title={used === null ? undefined : momentInWords(used, language)}
        >
          {used === null ? t("tools.last-use.never") : agoInWords(used, time, t)}
        </td>
        <td class="tool-actions">
          <div class="row">
            <button type="button" class="plain" onClick={() => onUse(tool.name)}>
              {t("tools.use")}
              <span class="visually-hidden"> {tool.name}</span>
            </button>
            {answer.sandbox ? null : <ToolSwitch tool={tool} />}
          </div>
        </td>
      </tr>
      <Details tool={tool} time={time} />
    </tbody>
  );
}

function State({ tool }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  const { state, running, waiting } = tool;
  const calls = [
    ...(running > 0 ? [t("tools.running", { n: running })] : []),
    ...(waiting > 0 ? [t("tools.waiting", { n: waiting })] : []),
  ];
  return (
    <>
      <span class="state" data-state={state}>
        {t(`state.${state}`)}
      </span>
      {tool.watch_only ? <div class="muted small">{t("tools.watch-only")}</div> : null}
      {calls.length === 0 ? null : <div class="small">{calls.join(t("frame.comma"))}</div>}
    </>
  );
}

function Group({ tool, answer }: Pick<ToolRowsProps, "tool" | "answer">) {
  const { t } = useFrame();
  if (tool.group === null) return <>–</>;
  const group = answer.groups.find(({ gateway, name }) => gateway === tool.gateway && name === tool.group);
  return (
    <>
      <div>
        {tool.group} {group === undefined ? null : <span class="muted">×{group.multiplier}</span>}
      </div>
      {group === undefined || group.models.every((model) => model === "*") ? null : (
        <div class="muted small">{group.models.join(", ")}</div>
      )}
      {group?.enabled === false ? <div class="small">{t("tools.group.disabled")}</div> : null}
    </>
  );
}

function Quota({ tool }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  const quota = tool.limits.find(({ limit }) => limit === "quota");
  if (quota === undefined) return <>{t("tools.quota.none")}</>;
  const { used, estimated, held, max } = statusFigures(quota);
  return (
    <>
      <div>{t("limit.of", { used: used ?? "–", most: max })}</div>
      <Bar status={quota} />
      {estimated === null ? null : <div class="muted small">{t("limit.estimated", { estimated })}</div>}
      {held === null ? null : <div class="muted small">{t("limit.held", { held })}</div>}
    </>
  );
}

function Details({ tool, time }: { readonly tool: ToolSettings; readonly time: number }) {
  const { t } = useFrame();
  const { why, next, state } = tool;
  const limits = tool.limits.filter(({ limit }) => limit !== "quota");
  const facts = consoleFacts(tool.console, time, t);
  // Of one that was disabled on purpose the button says all.
  const wrong = why !== null && state !== "disabled";
  if (!wrong && limits.length === 0 && facts.length === 0) return null;
  return (
    <tr class="tool-details">
      <td colSpan={8}>
        {wrong && state !== "no-token" ? <p class="small">{why}</p> : null}
        {wrong && next !== null ? <p class="small next">{next}</p> : null}
        {limits.length === 0 ? null : (
          <ul class="limits" aria-label={t("tools.limits")}>
            {limits.map((limit) => (
              <Gauge key={`${limit.limit} ${limit.per}`} status={limit} time={time} />
            ))}
          </ul>
        )}
        {facts.length === 0 ? null : (
          <p class="muted small">{t("tools.console", { facts: facts.join(t("frame.comma")) })}</p>
        )}
      </td>
    </tr>
  );
}

/** Older than this, what the console said may no longer hold. */
const STALE_MS = 3_600_000;

/** What the gateway's console says of a tool's key, each fact in a few words. */
function consoleFacts(facts: ToolConsoleFacts | null, now: number, t: Translate): string[] {
  if (facts === null) return [];
  const { state, expires_at: expires, balance, as_of: asOf } = facts;
  const texts = [
    ...(state === "active" || state === "unknown" ? [] : [t(`tools.console.state.${state}`)]),
    ...quotaFacts(facts, t),
    ...facts.windows.map(({ window, used, most }) => {
      const figures = consoleFigures(used, most);
      return t("tools.console.window", { window, used: figures.used ?? "–", most: figures.max });
    }),
    ...groupFacts(facts, t),
    ...(expires === null ? [] : [t("tools.console.expires", { day: dayOf(expires) })]),
    ...(balance === null ? [] : [t("tools.console.balance", { money: dollars(balance) })]),
  ];
  if (texts.length === 0 || now - asOf < STALE_MS) return texts;
  return [...texts, t("tools.console.as-of", { ago: agoInWords(asOf, now, t) })];
}

function quotaFacts({ quota, quota_used: used }: ToolConsoleFacts, t: Translate): string[] {
  if (quota === null)
    return used === null || used === 0 ? [] : [t("tools.console.used", { used: dollars(used) })];
  const figures = consoleFigures(used, quota);
  if (figures.used === null) return [t("tools.console.quota", { quota: figures.max })];
  return [t("tools.console.used-of", { used: figures.used, quota: figures.max })];
}

function groupFacts({ group, multiplier, multiplier_here: here }: ToolConsoleFacts, t: Translate): string[] {
  const named =
    group === null
      ? []
      : [
          multiplier === null
            ? t("tools.console.group-plain", { group })
            : t("tools.console.group", { group, multiplier }),
        ];
  return here === null ? named : [...named, t("tools.console.here", { multiplier: here })];
}

/** Opens the dialog that disables or enables it. */
function ToolSwitch({ tool: { name, enabled } }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  const act = useAct();
  const kind = enabled ? "disable" : "enable";
  return (
    <button type="button" class="plain" onClick={() => act({ kind, tool: name })}>
      {t(`tools.${kind}`)}
      <span class="visually-hidden"> {name}</span>
    </button>
  );
}
