import type { ComponentChildren } from "preact";
import type { ConfigProblem } from "../../../config/problems.ts";
import type { UsageStatus } from "../../../control/status.ts";
import type { LimitStatus, ToolStatus } from "../../../control/tool-status.ts";
import { advice } from "../../../core/advice.ts";
import { DAY_MS, dollars, exact } from "../../../core/units.ts";
import type { Kind } from "../../../limits/counters.ts";
import { isUsedUp } from "../../../limits/format.ts";
import type { Alarm, ConsoleStatus } from "../../../mirror/report/shape.ts";
import type { Now } from "../../api.ts";
import { joined, spanInWords, timeInWords, whenInWords } from "../format.ts";
import { useFrame, useTime } from "../frame.tsx";
import { moreInWords } from "../limits.ts";
import type { MessageId, Translate } from "../messages/messages.ts";
import { causeMessage } from "../refusals.ts";
import { hrefOf, hrefOfTool } from "../route.ts";
import { gatewayProblem, reasonInWords } from "../sentences.ts";
import { ActionButton } from "./action-dialog.tsx";
import { Gauges } from "./gauge.tsx";
import { NextStep } from "./text.tsx";

/** Something that needs the person. */
interface Card {
  readonly kind: "bad" | "warn";
  readonly title: string;
  /** What happened. null: nothing to say. */
  readonly lines?: readonly (string | null)[];
  readonly body?: ComponentChildren;
  /** What to type, as the daemon says it. */
  readonly next?: string | null;
  /** What to press. */
  readonly actions?: ComponentChildren;
}

/** What needs the person, the worst first. */
export function Cards({ now }: { readonly now: Now }) {
  const { t } = useFrame();
  const cards = cardsFor(now, useTime(), t);
  if (cards.length === 0) return null;
  return (
    <section class="stack" aria-label={t("card.region")}>
      {cards.map(({ kind, title, lines = [], body, next = null, actions }) => (
        <article key={title} class="box card stack" data-kind={kind}>
          {/* Only the title is an alert: what counts up below it would be read out again and again. */}
          <div role="alert">
            <h2>{title}</h2>
          </div>
          {lines.map((line) => (line === null ? null : <p key={line}>{line}</p>))}
          {body}
          <NextStep text={next} />
          {actions === undefined ? null : <p class="row">{actions}</p>}
        </article>
      ))}
    </section>
  );
}

/** The same in one line, for pages about something else. */
export function CardsLine({ now }: { readonly now: Now }) {
  const { t } = useFrame();
  const cards = cardsFor(now, useTime(), t);
  const [first] = cards;
  if (first === undefined) return null;
  return (
    <section class="box card row cards-line" data-kind={first.kind} aria-label={t("card.region")}>
      <p role="alert">
        <strong>{cards.map(({ title }) => title).join(" · ")}</strong>
      </p>
      <a href={hrefOf("overview")}>{t("card.more")}</a>
    </section>
  );
}

function cardsFor({ status }: Now, time: number, t: Translate): Card[] {
  const { tools, consoles, gateways, problems, config, usage, notify } = status;
  const alarms = consoles.flatMap((console) => console.alarms);
  const consoleOf = (tool: ToolStatus) => consoles.find(({ gateway }) => gateway === tool.gateway) ?? null;
  const inState = (state: ToolStatus["state"]) => tools.filter((tool) => tool.state === state);
  const errors = problems.filter(({ severity }) => severity === "error");
  const warnings = problems.filter(({ severity }) => severity === "warning");
  const failing = gateways.filter(({ state }) => state === "failing");
  const heldConsoles = consoles.filter(({ state }) => state === "needs-trust");
  const isNotifyHeld = notify.channels.some(({ state }) => state === "held");
  const configCard = (kind: Card["kind"], title: string, found: readonly ConfigProblem[]): Card[] => {
    if (found.length === 0) return [];
    const lines = [kind === "bad" ? t("card.config.text") : null];
    const body = <ProblemLines file={config.path} problems={found} />;
    return [{ kind, title, lines, body, next: advice.check() }];
  };
  return [
    ...alarms.filter(({ certain }) => certain).map((alarm) => alarmCard(alarm, time, t)),
    ...(usage.state === "ok" ? [] : [logCard(usage, time, t)]),
    ...inState("key-refused").map((tool) => refusedCard(tool, consoleOf(tool), time, t)),
    ...failing.map(({ name, since, failures, why, next }): Card => {
      const values = {
        time: timeInWords(since ?? time, time),
        n: exact(failures),
        problem: why === null ? t("frame.unknown") : gatewayProblem(why, t),
      };
      return {
        kind: "bad",
        title: t("card.gateway.title", { gateway: name }),
        lines: [t("card.gateway.text", values)],
        next,
      };
    }),
    ...configCard("bad", t("card.config.title"), errors),
    ...inState("key-unavailable").map(({ name, why, next }): Card => {
      const title = t("card.unreadable.title", { tool: name });
      return { kind: "bad", title, lines: [why], next };
    }),
    ...inState("needs-trust").map(({ name, why }) => heldCard(name, why, t)),
    ...heldConsoles.map(({ gateway, why }) => heldCard(gateway, why, t)),
    ...(isNotifyHeld ? [heldCard("notify", null, t)] : []),
    ...inState("at-limit").map((tool) => limitCard(tool, time, t)),
    ...alarms.filter(({ certain }) => !certain).map((alarm) => alarmCard(alarm, time, t)),
    ...tools.flatMap((tool) => expiryCards(tool, consoleOf(tool), time, t)),
    ...configCard("warn", t("card.config.warnings", { n: warnings.length }), warnings),
  ];
}

/** A key was used outside keybearer, or may have been: whose, how much, since when, and what to do now. */
function alarmCard(alarm: Alarm, time: number, t: Translate): Card {
  const { gateway, key, certain, tools, models, ips, count, last_at, reason, replaced, unlisted } = alarm;
  // A key that no tool has can only be deleted.
  const isUseless = replaced || tools.length === 0;
  const level = certain ? "alarm" : "suspected";
  const money = dollars(alarm.billed_microdollars);
  const first = timeInWords(alarm.first_at, time);
  const facts = [
    t("card.alarm.facts", { n: count, key, money, first, last: timeInWords(last_at, time) }),
    models.length === 0 ? null : t("card.alarm.models", { n: models.length, models: models.join(", ") }),
    ips.length === 0 ? null : t("card.alarm.ips", { ips: ips.join(", ") }),
  ];
  return {
    kind: certain ? "bad" : "warn",
    title:
      tools.length === 0
        ? t(`card.${level}.title.key`, { key })
        : t(`card.${level}.title`, { tools: tools.join(", ") }),
    lines: [
      joined(facts, t),
      certain || reason === null ? null : t("card.suspected.why", { reason: reasonInWords(reason, t) }),
      certain ? null : t("card.suspected.check"),
      isUseless
        ? t(unlisted ? "card.alarm.unlisted" : replaced ? "card.alarm.replaced" : "card.alarm.delete")
        : null,
    ],
    next: isUseless && !unlisted ? advice.deleteKey(key) : null,
    actions: (
      <>
        {(replaced ? [] : tools).map((tool) => (
          <RotateButton key={tool} tool={tool} />
        ))}
        <ActionButton action={{ kind: "acknowledge", gateway, key, certain, last_at, count }}>
          {t("card.alarm.acknowledge")}
        </ActionButton>
        <a href={hrefOf("bill")}>{t("card.alarm.look")}</a>
      </>
    ),
  };
}

function RotateButton({ tool }: { readonly tool: string }) {
  const { t } = useFrame();
  return (
    <ActionButton action={{ kind: "rotate", tool }} look="primary">
      {t("card.rotate", { tool })}
    </ActionButton>
  );
}

function logCard({ since, why, waiting, lost, next }: UsageStatus, time: number, t: Translate): Card {
  const span = spanInWords(time - (since ?? time), t);
  return {
    kind: "bad",
    title: t("card.log.title"),
    lines: [
      t("card.log.text", { span, problem: why ?? t("frame.unknown") }),
      waiting > 0 ? t("card.log.waiting", { n: exact(waiting) }) : null,
      lost > 0 ? t("card.log.lost", { n: exact(lost) }) : null,
    ],
    next,
  };
}

function refusedCard(tool: ToolStatus, console: ConsoleStatus | null, time: number, t: Translate): Card {
  const { name, gateway, refused, why, next } = tool;
  const actions =
    console === null ? undefined : (
      <>
        <RotateButton tool={name} />
        <ConsoleLink console={console} />
      </>
    );
  const title = t("card.refused.title", { tool: name, gateway });
  if (refused === null) return { kind: "bad", title, lines: [why], next, actions };
  const { status, key, times, since, words } = refused;
  const cause = refused.detail ?? (refused.cause === "unknown" ? null : refused.cause);
  const answer = cause === null ? `${status}` : `${status} (${cause})`;
  const problem = (words ?? "").trim().slice(0, 200);
  // In the reader's language, where the buttons do what the daemon says in English.
  const known = console === null ? null : causeMessage({ cause, cause_detail: null });
  return {
    kind: "bad",
    title,
    lines: [
      t("card.refused.text", { answer, key, n: times, span: spanInWords(time - since, t) }),
      known === null ? null : t(known),
      problem === "" ? null : t("card.refused.says", { problem }),
    ],
    next: known === null ? next : null,
    actions,
  };
}

function ConsoleLink({ console: { gateway, url } }: { readonly console: ConsoleStatus }) {
  const { t } = useFrame();
  if (!/^https?:\/\//.test(url)) return null;
  return (
    <a href={url} target="_blank" rel="noreferrer">
      {t("card.console", { gateway })}
    </a>
  );
}

/** A changed config.yaml would send a key elsewhere, or take it from elsewhere. */
function heldCard(name: string, problem: string | null, t: Translate): Card {
  return {
    kind: "bad",
    title: t("card.held.title", { name }),
    lines: [problem, t("card.held.text")],
    actions: (
      <ActionButton action={{ kind: "trust", name }} look="primary">
        {t("card.held.trust", { name })}
      </ActionButton>
    ),
  };
}

function limitCard(tool: ToolStatus, time: number, t: Translate): Card {
  const { name, limits } = tool;
  const full = limits.filter((limit) => limit.limit !== "concurrent" && isUsedUp(limit));
  return {
    kind: "warn",
    title: t("card.limit.title", { tool: name }),
    body: <Gauges limits={full} time={time} />,
    actions: (
      <>
        {[...allowances(full)].map(([limit, amount]) => (
          <ActionButton key={limit} action={{ kind: "give", tool: name, limit, amount }}>
            {t("card.limit.give", { amount: moreInWords(limit, amount, t) })}
          </ActionButton>
        ))}
        <a href={hrefOfTool(name)}>{t("card.limit.raise")}</a>
      </>
    ),
  };
}

/** So much lets the last refused request pass; where that is unknown, a tenth of the limit. A quota is only raised. */
function allowances(limits: readonly LimitStatus[]): ReadonlyMap<Kind, number> {
  const amounts = new Map<Kind, number>();
  for (const { limit, lift, most, extra } of limits) {
    if (limit === "quota" || limit === "concurrent") continue;
    const amount = lift ?? Math.ceil((most - extra) / 10);
    if (amount > (amounts.get(limit) ?? 0)) amounts.set(limit, amount);
  }
  return amounts;
}

const SOON_MS = 7 * DAY_MS;

/** What ends within a week: the tool by config.yaml, or its key at the console. */
function expiryCards(tool: ToolStatus, console: ConsoleStatus | null, time: number, t: Translate): Card[] {
  const { name, expires } = tool;
  const card = (title: MessageId, at: number | null, actions: ComponentChildren): Card[] => {
    if (at === null || at <= time || at - time > SOON_MS) return [];
    const values = { tool: name, when: whenInWords(at, time, t) };
    return [{ kind: "warn", title: t(title, values), actions }];
  };
  const later = <a href={hrefOfTool(name)}>{t("card.expires.later")}</a>;
  const link = console === null ? null : <ConsoleLink console={console} />;
  return [
    ...card("card.expires.title", expires, later),
    ...card("card.expires.key", tool.console?.expires_at ?? null, link),
  ];
}

interface ProblemLinesProps {
  readonly file: string;
  readonly problems: readonly ConfigProblem[];
}

/** Each problem of config.yaml as `keybearer check` prints it: place, message, the line with a caret, and the hint. */
function ProblemLines({ file, problems }: ProblemLinesProps) {
  return (
    <ul>
      {problems.map(({ path, line, column, message, hint, excerpt }) => (
        <li key={`${line} ${column} ${path} ${message}`}>
          <p>
            <code>{line > 0 ? `${file}:${line}:${column}` : file}</code> {path === "" ? "" : `${path}: `}
            {message}
          </p>
          {excerpt === null ? null : <pre>{excerpt}</pre>}
          <NextStep text={hint} />
        </li>
      ))}
    </ul>
  );
}
