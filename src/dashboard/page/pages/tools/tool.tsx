import { useEffect, useRef } from "preact/hooks";
import { costInWords, exact } from "../../../../core/units.ts";
import { statusFigures } from "../../../../limits/format.ts";
import type { DaySums, ToolAnswer, ToolSession, ToolSettings, ToolsAnswer, ToolToken } from "../../../api.ts";
import { useAct } from "../../act.ts";
import { ActionButton } from "../../components/action-button.tsx";
import { NextStep } from "../../components/copy.tsx";
import { Gauge } from "../../components/gauge.tsx";
import { NotLoaded } from "../../components/not-loaded.tsx";
import { Table } from "../../components/table.tsx";
import { agoInWords, momentInWords } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import { fullest, limitName } from "../../limit-amount.ts";
import { hrefOf } from "../../route.ts";
import { useAnswer } from "../../use-answer.ts";
import { useTime } from "../../use-time.ts";
import { Connect } from "./connect.tsx";
import { giveForm, giveSessionForm, liftable, SETTING_NAMES, settingsForm, tokenForm } from "./forms.ts";
import { Key } from "./key.tsx";
import { Models } from "./models.tsx";
import { State } from "./state.tsx";

interface ToolViewProps {
  readonly tool: ToolSettings;
  readonly answer: ToolsAnswer;
  /** null: it sent nothing today. */
  readonly today: DaySums | null;
}

/** Everything about one tool, and what can be changed of it. */
export function ToolView({ tool, answer, today }: ToolViewProps) {
  const { t, client } = useFrame();
  const act = useAct();
  const { name, state, enabled, running, last_use: used, why, next } = tool;
  const asked = useAnswer((signal) => client.tool(name, signal), [name, running, used, today?.requests ?? 0]);
  const details = asked.value;
  const heading = useRef<HTMLHeadingElement>(null);
  // Keyboard and screen reader begin here, and not where the list was.
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, []);
  const usage = hrefOf("usage", new URLSearchParams({ tool: name }));
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
          <State tool={tool} />
          <a href={usage}>
            {t("tools.usage", {
              n: today?.requests ?? 0,
              cost: costInWords(today?.cost_microdollars ?? 0, today?.unknown_cost),
            })}
          </a>
        </div>
        {why === null ? null : <p class="small">{why}</p>}
        <NextStep text={next} />
      </div>
      {answer.sandbox ? null : (
        <div class="row">
          <button
            type="button"
            class="plain"
            disabled={details === null}
            onClick={() => details !== null && act(settingsForm(tool, details, answer, t))}
          >
            {t("tools.change")}
          </button>
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
      )}
      <NotLoaded asked={asked} />
      <Limits tool={tool} />
      <div class="columns">
        <Key tool={tool} />
        <Tokens tool={tool} answer={answer} tokens={details?.tokens ?? null} />
      </div>
      <Sessions sessions={details?.sessions ?? null} />
      <OtherModels tool={tool} />
      {answer.sandbox ? null : <Settings settings={details?.settings ?? null} />}
      <Models tool={name} />
      <Connect tool={tool} answer={answer} />
    </>
  );
}

function Limits({ tool }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  const time = useTime(10_000);
  const { name, limits } = tool;
  return (
    <section class="panel" aria-labelledby="tool-limits">
      <header>
        <h2 id="tool-limits">{t("tools.limits.title")}</h2>
        {liftable(limits).length === 0 ? null : (
          <ActionButton action={giveForm(tool, t)}>{t("tools.give")}</ActionButton>
        )}
        {limits.some(({ extra }) => extra > 0) ? (
          <ActionButton action={{ kind: "take-back", tool: name }}>{t("tools.take-back")}</ActionButton>
        ) : null}
      </header>
      {limits.length === 0 ? (
        <p class="empty">{t("tools.unlimited")}</p>
      ) : (
        <ul class="limits body">
          {limits.map((limit) => (
            <Gauge key={`${limit.limit} ${limit.per}`} status={limit} time={time} />
          ))}
        </ul>
      )}
    </section>
  );
}

interface TokensProps {
  readonly tool: ToolSettings;
  readonly answer: ToolsAnswer;
  /** null: they are not there yet. */
  readonly tokens: readonly ToolToken[] | null;
}

function Tokens({ tool: { name: tool }, answer: { sandbox }, tokens }: TokensProps) {
  const { t, language } = useFrame();
  const time = useTime(10_000);
  return (
    <section class="panel" aria-labelledby="tool-tokens">
      <header>
        <h2 id="tool-tokens">{t("tools.tokens")}</h2>
        {sandbox ? null : <ActionButton action={tokenForm(tool, t)}>{t("tools.token.new")}</ActionButton>}
      </header>
      {tokens === null || tokens.length === 0 ? (
        <p class="empty">{t(tokens === null ? "frame.loading" : "tools.token.none")}</p>
      ) : (
        <Table
          caption={t("tools.tokens")}
          rows={tokens}
          keyOf={({ name }) => name}
          columns={[
            { id: "name", title: t("tools.token.name"), cell: ({ name }) => name },
            { id: "created", title: t("tools.token.created"), cell: ({ created }) => created ?? "–" },
            {
              id: "last-use",
              title: t("tools.last-use"),
              cell: ({ last_use: used }) =>
                used === null ? (
                  t("tools.last-use.never")
                ) : (
                  <span title={momentInWords(used, language)}>{agoInWords(used, time, t)}</span>
                ),
            },
            {
              id: "revoke",
              title: t("tools.actions"),
              cell: ({ name }) =>
                sandbox ? null : (
                  <ActionButton action={{ kind: "revoke", tool, name }} what={name}>
                    {t("tools.revoke")}
                  </ActionButton>
                ),
            },
          ]}
        />
      )}
    </section>
  );
}

function Sessions({ sessions }: { readonly sessions: readonly ToolSession[] | null }) {
  const { t } = useFrame();
  const time = useTime(10_000);
  return (
    <section class="panel one-line" aria-labelledby="tool-sessions">
      <header>
        <h2 id="tool-sessions">{t("tools.sessions")}</h2>
      </header>
      {sessions === null || sessions.length === 0 ? (
        <p class="empty">{t(sessions === null ? "frame.loading" : "tools.sessions.none")}</p>
      ) : (
        <Table
          caption={t("tools.sessions")}
          rows={sessions}
          keyOf={({ session }) => session}
          columns={[
            { id: "session", title: t("tools.session"), cell: ({ session }) => <code>{session}</code> },
            { id: "project", title: t("tools.project"), cell: ({ project }) => project ?? "–" },
            {
              id: "running",
              title: t("tools.state"),
              cell: ({ running, stopped, last_at: at }) =>
                stopped ? (
                  <span class="tag">{t("tools.stopped")}</span>
                ) : running > 0 ? (
                  t("tools.running", { n: running })
                ) : at === null ? (
                  "–"
                ) : (
                  agoInWords(at, time, t)
                ),
            },
            {
              id: "requests",
              title: t("limit.requests"),
              isNumber: true,
              cell: ({ requests }) => (requests === null ? "–" : exact(requests)),
            },
            {
              id: "cost",
              title: t("tools.cost"),
              isNumber: true,
              cell: ({ cost_microdollars: cost, unknown_cost: unknown }) =>
                cost === null ? "–" : costInWords(cost, unknown),
            },
            { id: "limits", title: t("tools.limits"), cell: (session) => <SessionLimit session={session} /> },
            {
              id: "actions",
              title: t("tools.actions"),
              cell: (session) => <SessionActions session={session} />,
            },
          ]}
        />
      )}
    </section>
  );
}

function SessionLimit({ session: { limits } }: { readonly session: ToolSession }) {
  const { t } = useFrame();
  const limit = fullest(limits);
  if (limit === null) return <>–</>;
  const { used, max } = statusFigures(limit);
  return (
    <>
      {t("limit.of", { used: used ?? "–", most: max })}{" "}
      <span class="muted small">{limitName({ limit: limit.limit, per: null }, t)}</span>
    </>
  );
}

function SessionActions({ session: whole }: { readonly session: ToolSession }) {
  const { t } = useFrame();
  const { tool, session, stopped, limits } = whole;
  const kind = stopped ? "allow-session" : "stop-session";
  return (
    <div class="row">
      <ActionButton action={{ kind, tool, session }} what={session}>
        {t(stopped ? "tools.allow" : "tools.stop")}
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
  return (
    <section class="panel" aria-labelledby="tool-models">
      <header>
        <h2 id="tool-models">{t("tools.other-models")}</h2>
        <span class="muted">
          {t("limit.of", { used: exact(models.other), most: exact(models.answered) })}
        </span>
      </header>
      <Table
        caption={t("tools.other-models")}
        rows={models.pairs}
        keyOf={({ asked, answered }) => JSON.stringify([asked, answered])}
        columns={[
          { id: "asked", title: t("tools.model.asked"), cell: ({ asked }) => asked },
          { id: "answered", title: t("tools.model.answered"), cell: ({ answered }) => answered },
          {
            id: "requests",
            title: t("limit.requests"),
            isNumber: true,
            cell: ({ requests }) => exact(requests),
          },
        ]}
      />
    </section>
  );
}

/** Each setting and where its value comes from. */
function Settings({ settings }: { readonly settings: ToolAnswer["settings"] | null }) {
  const { t } = useFrame();
  if (settings === null) return null;
  return (
    <section class="panel" aria-labelledby="tool-settings">
      <header>
        <h2 id="tool-settings">{t("tools.settings")}</h2>
      </header>
      <Table
        caption={t("tools.settings")}
        rows={SETTING_NAMES}
        keyOf={(name) => name}
        columns={[
          { id: "name", title: t("tools.setting"), cell: (name) => t(`setting.${name}`) },
          {
            id: "value",
            title: t("use.value"),
            cell: (name) => (settings[name] === null ? t("tools.map") : (settings[name] ?? t("tools.unset"))),
          },
          {
            id: "from",
            title: t("tools.from"),
            cell: (name) =>
              settings[name] === undefined ? t("tools.from.default") : <code>config.yaml</code>,
          },
        ]}
      />
    </section>
  );
}
