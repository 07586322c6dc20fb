import type { ComponentChildren } from "preact";
import type { ConfigProblem } from "../../../config/problems.ts";
import type { GatewayStatus, UsageStatus } from "../../../control/status.ts";
import type { LimitStatus, ToolStatus } from "../../../control/tool-status.ts";
import { advice } from "../../../core/advice.ts";
import { dollars, exact } from "../../../core/units.ts";
import type { Kind } from "../../../limits/counters.ts";
import { amountInWords, isUsedUp } from "../../../limits/format.ts";
import type { Alarm, ConsoleStatus } from "../../../mirror/report/shape.ts";
import type { Now } from "../../api.ts";
import { spanInWords, timeInWords, whenInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { Translate } from "../messages/messages.ts";
import { hrefOf } from "../route.ts";
import { useTime } from "../use-time.ts";
import { ActionButton } from "./action-button.tsx";
import { Command, NextStep } from "./copy.tsx";
import { Gauge } from "./gauge.tsx";

/** Something that needs the person. */
interface Card {
  readonly id: string;
  readonly kind: "bad" | "warn";
  readonly title: string;
  /** What happened, and what to press or to type. */
  readonly body: ComponentChildren;
}

/** What needs the person, the worst first. */
export function Cards({ now }: { readonly now: Now }) {
  const { t } = useFrame();
  const cards = cardsFor(now, useTime(10_000), t);
  if (cards.length === 0) return null;
  return (
    <section class="cards" aria-label={t("card.region")}>
      {cards.map(({ id, kind, title, body }) => (
        <article key={id} class="card" data-kind={kind}>
          {/* Only the title is an alert: what counts up below it would be read out again and again. */}
          <div role="alert">
            <h2>{title}</h2>
          </div>
          {body}
        </article>
      ))}
    </section>
  );
}

/** The same in one line, for pages about something else. */
export function CardsLine({ now }: { readonly now: Now | null }) {
  const { t } = useFrame();
  const time = useTime(10_000);
  const cards = now === null ? [] : cardsFor(now, time, t);
  const [first] = cards;
  if (first === undefined) return null;
  return (
    <section class="card cards-line" data-kind={first.kind} aria-label={t("card.region")}>
      <p role="alert">{cards.map(({ title }) => title).join(" · ")}</p>
      <a href={hrefOf("overview")}>{t("card.more")}</a>
    </section>
  );
}

function cardsFor({ status }: Now, time: number, t: Translate): Card[] {
  const { tools, consoles, problems } = status;
  const alarms = consoles.flatMap((console) => console.alarms);
  const consoleOf = (tool: ToolStatus) => consoles.find(({ gateway }) => gateway === tool.gateway) ?? null;
  const inState = (state: ToolStatus["state"]) => tools.filter((tool) => tool.state === state);
  const errors = problems.filter(({ severity }) => severity === "error");
  const warnings = problems.filter(({ severity }) => severity === "warning");
  const isNotifyHeld = status.notify.channels.some(({ state }) => state === "held");
  return [
    ...alarms.filter(({ certain }) => certain).map((alarm) => alarmCard(alarm, time, t)),
    ...(status.usage.state === "ok" ? [] : [logCard(status.usage, time, t)]),
    ...inState("key-refused").map((tool) => refusedCard(tool, consoleOf(tool), time, t)),
    ...status.gateways
      .filter(({ state }) => state === "failing")
      .map((gateway) => gatewayCard(gateway, time, t)),
    ...(errors.length === 0 ? [] : [configCard(status.config.path, errors, t)]),
    ...inState("key-unavailable").map((tool) => unreadableCard(tool, t)),
    ...inState("needs-trust").map(({ name, why }) => heldCard(name, why, t)),
    ...consoles
      .filter(({ state }) => state === "needs-trust")
      .map(({ gateway, why }) => heldCard(gateway, why, t)),
    ...(isNotifyHeld ? [heldCard("notify", null, t)] : []),
    ...inState("at-limit").map((tool) => limitCard(tool, time, t)),
    ...alarms.filter(({ certain }) => !certain).map((alarm) => alarmCard(alarm, time, t)),
    ...tools.flatMap((tool) => expiryCards(tool, consoleOf(tool), time, t)),
    ...(warnings.length === 0 ? [] : [warningsCard(status.config.path, warnings, t)]),
  ];
}

/** A key was used outside keybearer, or may have been: whose, how much, since when, and what to do now. */
function alarmCard(alarm: Alarm, time: number, t: Translate): Card {
  const { gateway, key, certain, tools, models, ips, count, last_at, reason } = alarm;
  const level = certain ? "alarm" : "suspected";
  const facts = [
    t("card.alarm.facts", {
      n: count,
      key,
      money: dollars(alarm.billed_microdollars),
      first: timeInWords(alarm.first_at, time),
      last: timeInWords(last_at, time),
    }),
    ...(models.length === 0 ? [] : [t("card.alarm.models", { n: models.length, models: models.join(", ") })]),
    ...(ips.length === 0 ? [] : [t("card.alarm.ips", { ips: ips.join(", ") })]),
  ];
  const title =
    tools.length === 0
      ? t(`card.${level}.title.key`, { key })
      : t(`card.${level}.title`, { tools: tools.join(", ") });
  return {
    id: `${level} ${gateway} ${key}`,
    kind: certain ? "bad" : "warn",
    title,
    body: (
      <>
        <p>{facts.join(t("frame.comma"))}</p>
        {certain || reason === null ? null : <p>{t("card.suspected.why", { reason })}</p>}
        {certain ? null : <p>{t("card.suspected.check")}</p>}
        <Deletion alarm={alarm} />
        <p class="row">
          {alarm.replaced
            ? null
            : tools.map((tool) => (
                <ActionButton key={tool} action={{ kind: "rotate", tool }} look="primary">
                  {t("card.rotate", { tool })}
                </ActionButton>
              ))}
          <ActionButton action={{ kind: "acknowledge", alarm: { gateway, key, certain, last_at, count } }}>
            {t("card.alarm.acknowledge")}
          </ActionButton>
          <a href={hrefOf("bill")}>{t("card.alarm.look")}</a>
        </p>
      </>
    ),
  };
}

/** A key that no tool has can only be deleted. */
function Deletion({ alarm: { replaced, unlisted, tools, key } }: { readonly alarm: Alarm }) {
  const { t } = useFrame();
  if (!replaced && tools.length > 0) return null;
  if (unlisted) return <p>{t("card.alarm.unlisted")}</p>;
  return (
    <p>
      {t(replaced ? "card.alarm.replaced" : "card.alarm.delete")} <Command text={advice.deleteKey(key)} />
    </p>
  );
}

function logCard({ since, why, waiting, lost, next }: UsageStatus, time: number, t: Translate): Card {
  return {
    id: "log",
    kind: "bad",
    title: t("card.log.title"),
    body: (
      <>
        <p>
          {t("card.log.text", {
            span: spanInWords(time - (since ?? time), t),
            why: why ?? t("frame.unknown"),
          })}
        </p>
        {waiting > 0 ? <p>{t("card.log.waiting", { n: exact(waiting) })}</p> : null}
        {lost > 0 ? <p>{t("card.log.lost", { n: exact(lost) })}</p> : null}
        <NextStep text={next} />
      </>
    ),
  };
}

function refusedCard(tool: ToolStatus, console: ConsoleStatus | null, time: number, t: Translate): Card {
  const { name, gateway, refused, why, next } = tool;
  const cause = refused?.detail ?? (refused?.cause === "unknown" ? null : refused?.cause);
  return {
    id: `refused ${name}`,
    kind: "bad",
    title: t("card.refused.title", { tool: name, gateway }),
    body: (
      <>
        {refused === null ? (
          <p>{why}</p>
        ) : (
          <p>
            {t("card.refused.text", {
              answer: [refused.status, cause ? `(${cause})` : null].filter((part) => part !== null).join(" "),
              key: refused.key,
              n: refused.times,
              span: spanInWords(time - refused.since, t),
            })}
          </p>
        )}
        {refused?.words ? (
          <p class="muted">{t("card.refused.words", { words: shortened(refused.words) })}</p>
        ) : null}
        <NextStep text={next} />
        {console === null ? null : (
          <p class="row">
            <ActionButton action={{ kind: "rotate", tool: name }} look="primary">
              {t("card.rotate", { tool: name })}
            </ActionButton>
            <ConsoleLink console={console} />
          </p>
        )}
      </>
    ),
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

function unreadableCard({ name, why, next }: ToolStatus, t: Translate): Card {
  return {
    id: `unreadable ${name}`,
    kind: "bad",
    title: t("card.unreadable.title", { tool: name }),
    body: (
      <>
        <p>{why}</p>
        <NextStep text={next} />
      </>
    ),
  };
}

/** A changed config.yaml would send a key elsewhere, or take it from elsewhere. */
function heldCard(name: string, why: string | null, t: Translate): Card {
  return {
    id: `held ${name}`,
    kind: "bad",
    title: t("card.held.title", { name }),
    body: (
      <>
        {why === null ? null : <p>{why}</p>}
        <p>{t("card.held.text")}</p>
        <p class="row">
          <ActionButton action={{ kind: "trust", name }} look="primary">
            {t("card.held.trust", { name })}
          </ActionButton>
        </p>
      </>
    ),
  };
}

function gatewayCard({ name, since, failures, why, next }: GatewayStatus, time: number, t: Translate): Card {
  const values = {
    time: timeInWords(since ?? time, time),
    n: exact(failures),
    why: why ?? t("frame.unknown"),
  };
  return {
    id: `gateway ${name}`,
    kind: "bad",
    title: t("card.gateway.title", { gateway: name }),
    body: (
      <>
        <p>{t("card.gateway.text", values)}</p>
        <NextStep text={next} />
      </>
    ),
  };
}

function limitCard(tool: ToolStatus, time: number, t: Translate): Card {
  const { name, limits } = tool;
  const full = limits.filter((limit) => limit.limit !== "concurrent" && isUsedUp(limit));
  return {
    id: `limit ${name}`,
    kind: "warn",
    title: t("card.limit.title", { tool: name }),
    body: (
      <>
        <ul class="limits">
          {full.map((limit) => (
            <Gauge key={`${limit.limit} ${limit.per}`} status={limit} time={time} />
          ))}
        </ul>
        <p class="row">
          {allowances(full).map(({ limit, amount }) => (
            <ActionButton key={limit} action={{ kind: "give", tool: name, limit, amount }}>
              {t("card.limit.give", { amount: amountInWords(limit, amount) })}
            </ActionButton>
          ))}
          <a href={hrefOf("tools", new URLSearchParams({ tool: name }))}>{t("card.limit.raise")}</a>
        </p>
      </>
    ),
  };
}

/** So much lets the last refused request pass; where that is unknown, a tenth of the limit. A quota is only raised. */
function allowances(
  limits: readonly LimitStatus[],
): readonly { readonly limit: Kind; readonly amount: number }[] {
  const amounts = new Map<Kind, number>();
  for (const { limit, lift, most, extra } of limits) {
    if (limit === "quota" || limit === "concurrent") continue;
    const amount = lift ?? Math.ceil((most - extra) / 10);
    if (amount > (amounts.get(limit) ?? 0)) amounts.set(limit, amount);
  }
  return [...amounts].map(([limit, amount]) => ({ limit, amount }));
}

const SOON_MS = 7 * 86_400_000;

/** What ends within a week: the tool by config.yaml, or its key at the console. */
function expiryCards(tool: ToolStatus, console: ConsoleStatus | null, time: number, t: Translate): Card[] {
  const { name, expires } = tool;
  const keyExpires = tool.console?.expires_at ?? null;
  const isSoon = (at: number | null): at is number => at !== null && at > time && at - time <= SOON_MS;
  const cards: Card[] = [];
  if (isSoon(expires))
    cards.push({
      id: `expires ${name}`,
      kind: "warn",
      title: t("card.expires.title", { tool: name, when: whenInWords(expires, time, t) }),
      body: (
        <p>
          <a href={hrefOf("tools", new URLSearchParams({ tool: name }))}>{t("card.expires.later")}</a>
        </p>
      ),
    });
  if (isSoon(keyExpires) && console !== null)
    cards.push({
      id: `key expires ${name}`,
      kind: "warn",
      title: t("card.expires.key", { tool: name, when: whenInWords(keyExpires, time, t) }),
      body: (
        <p>
          <ConsoleLink console={console} />
        </p>
      ),
    });
  return cards;
}

function configCard(file: string, problems: readonly ConfigProblem[], t: Translate): Card {
  return {
    id: "config",
    kind: "bad",
    title: t("card.config.title"),
    body: (
      <>
        <ProblemLines file={file} problems={problems} />
        <p>
          {t("card.config.text")} <Command text={advice.check()} />
        </p>
      </>
    ),
  };
}

function warningsCard(file: string, problems: readonly ConfigProblem[], t: Translate): Card {
  return {
    id: "warnings",
    kind: "warn",
    title: t("card.config.warnings", { n: problems.length }),
    body: (
      <details>
        <summary>{t("card.config.show")}</summary>
        <ProblemLines file={file} problems={problems} />
      </details>
    ),
  };
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
          <NextStep text={hint} />
        </li>
      ))}
    </ul>
  );
}

function shortened(words: string): string {
  const line = words.replace(/\s+/g, " ").trim();
  return line.length > 200 ? `${line.slice(0, 200)}…` : line;
}
