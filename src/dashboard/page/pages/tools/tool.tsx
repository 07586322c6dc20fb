import { useEffect, useRef } from "preact/hooks";
import { costInWords, dayName, dollars, exact } from "../../../../core/units.ts";
import { consoleFigures } from "../../../../limits/format.ts";
import type { ToolConsoleFacts } from "../../../../mirror/report/shape.ts";
import type { ModelPair } from "../../../../proxy/other-models.ts";
import type { DaySums, ToolAnswer, ToolSession, ToolSettings, ToolsAnswer, ToolToken } from "../../../api.ts";
import { Answered, useAnswer } from "../../answer.tsx";
import { ActionButton } from "../../components/action-dialog.tsx";
import { factorInWords } from "../../components/compared.ts";
import { FullestLimit, Gauges } from "../../components/gauge.tsx";
import { Fold, type Pair, Pairs, Panel, State } from "../../components/panel.tsx";
import { type Column, column, numberColumn, TablePanel } from "../../components/table.tsx";
import { Ago, NextStep } from "../../components/text.tsx";
import { agoInWords } from "../../format.ts";
import { useFrame, useTime } from "../../frame.tsx";
import { usedInWords } from "../../limits.ts";
import type { Translate } from "../../messages/messages.ts";
import { hrefOf } from "../../route.ts";
import { toolProblem } from "../../sentences.ts";
import { Connect } from "./connect.tsx";
import {
  giveForm,
  giveSessionForm,
  liftable,
  SETTING_NAMES,
  type SettingName,
  settingsForm,
  tokenForm,
} from "./forms.ts";

interface ToolViewProps {
  readonly tool: ToolSettings;
  readonly answer: ToolsAnswer;
  /** null: it sent nothing today. */
  readonly today: DaySums | null;
}

/** Everything about one tool, and what can be changed of it. */
export function ToolView({ tool, answer, today }: ToolViewProps) {
  const { t } = useFrame();
  const { name, running, last_use: used } = tool;
  const { text: why, next } = toolProblem(tool, useTime(), t);
  const requests = today?.requests ?? 0;
  const cost = costInWords(today?.cost_microdollars ?? 0, today?.unknown_cost);
  const asked = useAnswer(`/api/tools/${encodeURIComponent(name)}`, { on: `${running} ${used} ${requests}` });
  const heading = useRef<HTMLHeadingElement>(null);
  // Keyboard and screen reader begin here, and not where the list was.
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, []);
  return (
    <>
      <div class="stack">
        <p class="small">
          <a href={hrefOf("tools")}>{t("tools.all")}</a>
        </p>
        <div class="row">
          <h1 ref={heading} tabIndex={-1}>
            {name}
          </h1>
          <ToolState tool={tool} />
          <a href={hrefOf("usage", new URLSearchParams({ tool: name }))}>
            {t("tools.usage", { n: requests, cost })}
          </a>
        </div>
        {why === null ? null : <p class="small">{why}</p>}
        <NextStep text={next} />
      </div>
      <Answered asked={asked}>
        {(details) => (
          <>
            {answer.sandbox ? null : <Actions tool={tool} details={details} answer={answer} />}
            <Limits tool={tool} />
            <div class="grid columns">
              <Key tool={tool} />
              <Tokens tool={name} isFixed={answer.sandbox} tokens={details.tokens} />
            </div>
            <Sessions sessions={details.sessions} />
            <OtherModels tool={tool} />
            {answer.sandbox ? null : <Settings settings={details.settings} />}
          </>
        )}
      </Answered>
      <Fold name="panel fold" title={<h2>{t("tools.models")}</h2>}>
        {() => <Models tool={name} />}
      </Fold>
      <Fold name="panel fold" title={<h2>{t("use.title")}</h2>}>
        {() => <Connect tool={tool} answer={answer} />}
      </Fold>
    </>
  );
}

interface ActionsProps {
  readonly tool: ToolSettings;
  readonly details: ToolAnswer;
  readonly answer: ToolsAnswer;
}

function Actions({ tool, details, answer }: ActionsProps) {
  const { t } = useFrame();
  const { name, state, enabled } = tool;
  return (
    <div class="row">
      <ActionButton action={settingsForm(tool, details, answer, t)}>{t("tools.change")}</ActionButton>
      {state === "needs-trust" ? (
        <ActionButton action={{ kind: "trust", name }} look="primary">
          {t("tools.trust")}
        </ActionButton>
      ) : null}
      <ActionButton action={{ kind: "rotate", tool: name }}>{t("tools.rotate")}</ActionButton>
      <ActionButton
        action={{ kind: enabled ? "disable" : "enable", tool: name }}
        look={enabled ? "plain danger" : "plain"}
      >
        {t(enabled ? "tools.disable" : "tools.enable")}
      </ActionButton>
    </div>
  );
}

/** Whether a tool works, and what it does now. */
export function ToolState({ tool }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  const { state, running, waiting, watch_only } = tool;
  const notes = [
    watch_only ? t("tools.watch-only") : null,
    running > 0 ? t("tools.running", { n: running }) : null,
    waiting > 0 ? t("tools.waiting", { n: waiting }) : null,
  ];
  return (
    <>
      <State state={state}>{t(`state.${state}`)}</State>
      <span class="small"> {notes.filter((note) => note !== null).join(t("frame.comma"))}</span>
    </>
  );
}

function Limits({ tool }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  const time = useTime();
  const { name, limits } = tool;
  return (
    <Panel
      name="tool-limits"
      title={t("tools.limits.title")}
      aside={
        <>
          {liftable(limits).length === 0 ? null : (
            <ActionButton action={giveForm(tool, t)}>{t("tools.give")}</ActionButton>
          )}
          {limits.some(({ extra }) => extra > 0) ? (
            <ActionButton action={{ kind: "take-back", tool: name }}>{t("tools.take-back")}</ActionButton>
          ) : null}
        </>
      }
    >
      {limits.length === 0 ? (
        <p class="empty">{t("tools.unlimited")}</p>
      ) : (
        <div class="body">
          <Gauges limits={limits} time={time} />
        </div>
      )}
    </Panel>
  );
}

/** A tool's key: where it is kept, and what the gateway and its console say of it. */
function Key({ tool }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  const time = useTime();
  const { key, source, gateway, group, console } = tool;
  const facts: Pair[] = [
    [t("word.gateway"), group === null ? gateway : `${gateway} / ${group}`],
    // The fingerprint already describes the key itself.
    [t("tools.source"), source.replace(` (${key})`, "")],
    ...(console === null ? [] : consoleFacts(console, time, t)),
  ];
  return (
    <Panel
      name="tool-key"
      title={t("tools.key.title")}
      aside={key === null ? t("word.none") : <code>{key}</code>}
    >
      <div class="body">
        <Pairs pairs={facts} />
      </div>
    </Panel>
  );
}

function consoleFacts(facts: ToolConsoleFacts, now: number, t: Translate): Pair[] {
  const { state, created_at: created, expires_at: expires, balance, as_of: asOf } = facts;
  return [
    [t("tools.console.state"), t(`bill.keys.state.${state}`)],
    [
      t("word.created"),
      created === null ? null : `${dayName(created)}${t("frame.comma")}${agoInWords(created, now, t)}`,
    ],
    [t("word.expires"), expires === null ? null : dayName(expires)],
    [t("tools.console.used"), quotaInWords(facts, t)],
    ...facts.windows.map(
      ({ window, used, most }): Pair => [window, usedInWords(consoleFigures(used, most), t)],
    ),
    [t("tools.console.group"), groupInWords(facts, t)],
    [t("tools.console.balance"), balance === null ? null : dollars(balance)],
    [t("word.as-of"), agoInWords(asOf, now, t)],
  ];
}

function quotaInWords({ quota, quota_used: used }: ToolConsoleFacts, t: Translate): string | null {
  if (quota !== null) return usedInWords(consoleFigures(used, quota), t);
  return used === null || used === 0 ? null : dollars(used);
}

function groupInWords(
  { group, multiplier, multiplier_here: here }: ToolConsoleFacts,
  t: Translate,
): string | null {
  if (group === null) return null;
  const named = multiplier === null ? group : `${group} ${factorInWords(multiplier)}`;
  return here === null
    ? named
    : `${named}${t("frame.comma")}${t("tools.console.here", { multiplier: here })}`;
}

interface TokensProps {
  readonly tool: string;
  /** The sandbox's tokens cannot be changed. */
  readonly isFixed: boolean;
  readonly tokens: readonly ToolToken[];
}

function Tokens({ tool, isFixed, tokens }: TokensProps) {
  const { t } = useFrame();
  const button = <ActionButton action={tokenForm(tool, t)}>{t("tools.token.new")}</ActionButton>;
  const revoke = ({ name }: ToolToken) => (
    <ActionButton action={{ kind: "revoke", tool, name }} what={name}>
      {t("tools.revoke")}
    </ActionButton>
  );
  const columns: readonly Column<ToolToken>[] = [
    column(t("word.name"), ({ name }) => name),
    column(t("word.created"), ({ created }) => created ?? "–"),
    column(t("word.last-use"), ({ last_use: used }) => <Ago at={used} />),
    column(t("tools.actions"), (token) => (isFixed ? null : revoke(token))),
  ];
  return (
    <TablePanel
      name="tool-tokens"
      title={t("tools.tokens")}
      aside={isFixed ? null : button}
      rows={tokens}
      keyOf={({ name }) => name}
      empty={t("tools.token.none")}
      columns={columns}
    />
  );
}

function Sessions({ sessions }: Pick<ToolAnswer, "sessions">) {
  const { t } = useFrame();
  const activity = ({ running, stopped, last_at: at }: ToolSession) => {
    if (stopped) return <span class="tag">{t("tools.stopped")}</span>;
    if (running > 0) return t("tools.running", { n: running });
    return at === null ? "–" : <Ago at={at} />;
  };
  const columns: readonly Column<ToolSession>[] = [
    column(t("usage.by.session"), ({ session }) => <code>{session}</code>),
    column(t("word.project"), ({ project }) => project ?? "–"),
    column(t("word.state"), activity),
    numberColumn(t("limit.requests"), ({ requests }) => (requests === null ? "–" : exact(requests))),
    numberColumn(t("word.cost"), ({ cost_microdollars: cost, unknown_cost: unknown }) =>
      cost === null ? "–" : costInWords(cost, unknown),
    ),
    column(t("tools.limits"), ({ limits }) => <FullestLimit limits={limits} none="–" />),
    column(t("tools.actions"), (session) => <SessionActions session={session} />),
  ];
  return (
    <TablePanel
      name="tool-sessions one-line"
      title={t("tools.sessions")}
      rows={sessions}
      keyOf={({ session }) => session}
      empty={t("tools.sessions.none")}
      columns={columns}
    />
  );
}

function SessionActions({ session: whole }: { readonly session: ToolSession }) {
  const { t } = useFrame();
  const { tool, session, stopped, limits } = whole;
  const kind = stopped ? "allow-session" : "stop-session";
  return (
    <div class="row">
      <ActionButton action={{ kind, tool, session }} what={session}>
        {t(stopped ? "tools.allow" : "word.stop")}
      </ActionButton>
      {limits.length === 0 ? null : (
        <ActionButton action={giveSessionForm(whole, t)} what={session}>
          {t("tools.give")}
        </ActionButton>
      )}
    </div>
  );
}

function OtherModels({ tool: { models_answered: models } }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  if (!models || models.other === 0) return null;
  const share = t("limit.of", { used: exact(models.other), most: exact(models.answered) });
  const columns: readonly Column<ModelPair>[] = [
    column(t("tools.model.asked"), ({ asked }) => asked),
    column(t("tools.model.answered"), ({ answered }) => answered),
    numberColumn(t("limit.requests"), ({ requests }) => exact(requests)),
  ];
  return (
    <TablePanel
      name="tool-models"
      title={t("tools.other-models")}
      aside={<span class="muted">{share}</span>}
      rows={models.pairs}
      keyOf={({ asked, answered }) => JSON.stringify([asked, answered])}
      columns={columns}
    />
  );
}

/** Each setting and where its value comes from. */
function Settings({ settings }: Pick<ToolAnswer, "settings">) {
  const { t } = useFrame();
  const valueOfSetting = (name: string) =>
    settings[name] === null ? t("tools.map") : (settings[name] ?? "–");
  const columns: readonly Column<SettingName>[] = [
    column(t("tools.setting"), (name) => t(`setting.${name}`)),
    column(t("use.value"), valueOfSetting),
    column(t("tools.from"), (name) =>
      settings[name] === undefined ? t("tools.from.default") : <code>config.yaml</code>,
    ),
  ];
  return (
    <TablePanel
      name="tool-settings"
      title={t("tools.settings")}
      rows={SETTING_NAMES}
      keyOf={(name) => name}
      columns={columns}
    />
  );
}

/** The models that the gateway lists for the tool's key. */
function Models({ tool }: { readonly tool: string }) {
  const { t } = useFrame();
  const asked = useAnswer("/api/models", { query: new URLSearchParams({ tool }) });
  return (
    <Answered asked={asked} waiting={t("tools.models.asking")}>
      {({ models: listed }) => {
        const problem = listed?.problem ?? null;
        const models = listed?.models ?? [];
        if (problem !== null)
          return (
            <div class="body">
              <p>{problem.why}</p>
              <NextStep text={problem.next} />
            </div>
          );
        if (models.length === 0) return <p class="empty">{t("tools.models.none")}</p>;
        return (
          <ul class="body grid">
            {models.map(({ id, in_group: isAllowed }) => (
              <li key={id} class={isAllowed ? undefined : "muted"}>
                <code>{id}</code> {isAllowed ? null : t("tools.models.not-in-group")}
              </li>
            ))}
          </ul>
        );
      }}
    </Answered>
  );
}
