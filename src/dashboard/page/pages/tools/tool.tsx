import type { GatewayStatus } from "../../../../control/status.ts";
import type { ToolStatus } from "../../../../control/tool-status.ts";
import { costInWords, dayName, dollars, exact } from "../../../../core/units.ts";
import type { ModelPair, OtherModelStatus } from "../../../../proxy/other-models.ts";
import type { DaySums, Now } from "../../../api.ts";
import type { ToolAnswer } from "../../../tools.ts";
import { Answered, useAnswer } from "../../answer.tsx";
import { ActionButton } from "../../components/action-dialog.tsx";
import { factorInWords } from "../../components/compared.ts";
import { Gauges } from "../../components/gauge.tsx";
import { Fold, type Pair, Pairs, Panel, State } from "../../components/panel.tsx";
import { type Column, column, numberColumn, TablePanel } from "../../components/table.tsx";
import { Ago, NextStep } from "../../components/text.tsx";
import { agoInWords, joined } from "../../format.ts";
import { useFrame, useTime } from "../../frame.tsx";
import { groupInWords, quotaInWords, windowsInWords } from "../../limits.ts";
import type { Translate } from "../../messages/messages.ts";
import { hrefOf } from "../../route.ts";
import { toolProblem } from "../../sentences.ts";
import { Sessions } from "../sessions.tsx";
import { Connect } from "./connect.tsx";
import { giveForm, liftable, settingsForm, tokenForm } from "./forms.ts";

/** A tool as it is now. */
export interface ShownTool extends ToolStatus {
  /** null: it sent nothing today. */
  readonly today: DaySums | null;
}

export function costOfDay({ cost_microdollars: cost, unknown_cost: unknown }: DaySums): string {
  return costInWords(cost, unknown);
}

/** main / coding */
export function gatewayAndGroup({ gateway, group }: ToolStatus): string {
  return group === null ? gateway : `${gateway} / ${group}`;
}

/** 2 of 3 */
export function othersOf(models: OtherModelStatus | null | undefined, t: Translate): string {
  return models == null ? "–" : t("limit.of", { used: exact(models.other), most: exact(models.answered) });
}

interface ToolViewProps {
  readonly tool: ShownTool;
  readonly now: Now;
}

/** Everything about one tool, and what can be changed of it. */
export function ToolView({ tool, now }: ToolViewProps) {
  const { t } = useFrame();
  const { gateways, sandbox } = now.status;
  const { name, today } = tool;
  const { text: why, next } = toolProblem(tool, useTime(), t);
  const requests = today?.requests ?? 0;
  // A tool is also changed in a terminal, or on another page.
  const fresh = `${now.status.config.revision} ${tool.running} ${tool.last_use} ${requests}`;
  const asked = useAnswer(`/api/tools/${encodeURIComponent(name)}`, { fresh });
  return (
    <>
      <div class="stack">
        <p class="small">
          <a href={hrefOf("tools")}>{t("tools.all")}</a>
        </p>
        <div class="row">
          <h1>{name}</h1>
          <a href={hrefOf("usage", new URLSearchParams({ tool: name }))}>
            {t("tools.usage", { n: requests, cost: today === null ? dollars(0) : costOfDay(today) })}
          </a>
          <ToolState tool={tool} />
        </div>
        {why === null ? null : <p class="small">{why}</p>}
        <NextStep text={next} />
      </div>
      <Answered asked={asked}>
        {(details) => (
          <>
            {sandbox ? null : <Actions tool={tool} details={details} gateways={gateways} />}
            <Limits tool={tool} />
            <div class="grid columns">
              <Key tool={tool} source={details.source} />
              <Tokens tool={name} isFixed={sandbox} tokens={details.tokens} />
            </div>
            <Sessions
              title={t("tools.sessions")}
              empty={t("tools.sessions.none")}
              sessions={details.sessions}
              running={now.running}
              hasTools={false}
            />
            <OtherModels tool={tool} />
            <Fold name="panel fold" title={<h2>{t("use.title")}</h2>}>
              {() => <Connect tool={name} details={details} />}
            </Fold>
          </>
        )}
      </Answered>
    </>
  );
}

interface ActionsProps {
  readonly tool: ToolStatus;
  readonly details: ToolAnswer;
  readonly gateways: readonly GatewayStatus[];
}

function Actions({ tool: { name, state, gateway }, details, gateways }: ActionsProps) {
  const { t } = useFrame();
  const { enabled } = details;
  return (
    <div class="row">
      <ActionButton action={settingsForm({ name, gateway }, details, gateways, t)}>
        {t("tools.change")}
      </ActionButton>
      {state === "needs-trust" ? (
        <ActionButton action={{ kind: "trust", name }} look="primary">
          {t("tools.trust")}
        </ActionButton>
      ) : null}
      <ActionButton action={{ kind: "rotate", tool: name }}>{t("tools.rotate")}</ActionButton>
      <ActionButton action={{ kind: enabled ? "disable" : "enable", tool: name }}>
        {t(enabled ? "tools.disable" : "tools.enable")}
      </ActionButton>
    </div>
  );
}

/** Whether a tool works, and what it does now. */
export function ToolState({ tool }: { readonly tool: ToolStatus }) {
  const { t } = useFrame();
  const { state, running, waiting, watch_only } = tool;
  const notes = [
    watch_only ? t("tools.watch-only") : null,
    running > 0 ? t("tools.running", { n: running }) : null,
    waiting > 0 ? t("overview.waiting", { n: waiting }) : null,
  ];
  return (
    <>
      <State state={state}>{t(`state.${state}`)}</State>
      <span class="small"> {joined(notes, t)}</span>
    </>
  );
}

function Limits({ tool }: { readonly tool: ToolStatus }) {
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
            <ActionButton action={giveForm(name, null, limits, t)}>{t("tools.give")}</ActionButton>
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
function Key({ tool, source }: { readonly tool: ToolStatus; readonly source: string }) {
  const { t } = useFrame();
  const time = useTime();
  const { key } = tool;
  return (
    <Panel
      name="tool-key"
      title={t("tools.key.title")}
      aside={key === null ? t("word.none") : <code>{key}</code>}
    >
      <div class="body">
        <Pairs
          pairs={[
            [t("word.gateway"), gatewayAndGroup(tool)],
            // The fingerprint already describes the key itself.
            [t("tools.source"), source.replace(` (${key})`, "")],
            ...consoleFacts(tool, time, t),
          ]}
        />
      </div>
    </Panel>
  );
}

function consoleFacts({ console }: ToolStatus, now: number, t: Translate): Pair[] {
  if (console === null) return [];
  const { state, created_at: created, expires_at: expires, balance, multiplier_here: here } = console;
  const age = created === null ? [] : [dayName(created), agoInWords(created, now, t)];
  const ours = here === null ? null : t("bill.multiplier.here", { factor: factorInWords(here) });
  return [
    [t("tools.console.state"), t(`bill.keys.state.${state}`)],
    [t("word.created"), joined(age, t)],
    [t("word.expires"), expires === null ? null : dayName(expires)],
    [t("tools.console.used"), quotaInWords(console, t)],
    [t("bill.keys.windows"), windowsInWords(console, t)],
    [t("tools.console.group"), joined([groupInWords(console), ours], t)],
    [t("tools.console.balance"), balance === null ? null : dollars(balance)],
    [t("word.as-of"), agoInWords(console.as_of, now, t)],
  ];
}

interface TokensProps {
  readonly tool: string;
  /** The sandbox's tokens cannot be changed. */
  readonly isFixed: boolean;
  readonly tokens: ToolAnswer["tokens"];
}

function Tokens({ tool, isFixed, tokens }: TokensProps) {
  const { t } = useFrame();
  const button = <ActionButton action={tokenForm(tool, t)}>{t("tools.token.new")}</ActionButton>;
  const revoke = ({ name }: ToolAnswer["tokens"][number]) => (
    <ActionButton action={{ kind: "revoke", tool, name }} what={name}>
      {t("tools.revoke")}
    </ActionButton>
  );
  const columns: readonly Column<ToolAnswer["tokens"][number]>[] = [
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

function OtherModels({ tool: { models_answered: models } }: { readonly tool: ToolStatus }) {
  const { t } = useFrame();
  if (!models || models.other === 0) return null;
  const columns: readonly Column<ModelPair>[] = [
    column(t("tools.model.asked"), ({ asked }) => asked),
    column(t("tools.model.answered"), ({ answered }) => answered),
    numberColumn(t("limit.requests"), ({ requests }) => exact(requests)),
  ];
  return (
    <TablePanel
      name="tool-models"
      title={t("tools.other-models")}
      aside={<span class="muted">{othersOf(models, t)}</span>}
      rows={models.pairs}
      keyOf={({ asked, answered }) => JSON.stringify([asked, answered])}
      columns={columns}
    />
  );
}
