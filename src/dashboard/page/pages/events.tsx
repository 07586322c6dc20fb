import type { ComponentChildren } from "preact";
import { advice } from "../../../core/advice.ts";
import { Answered, useAnswer } from "../answer.tsx";
import { Panel } from "../components/panel.tsx";
import { Command, Moment, NextStep } from "../components/text.tsx";
import { type PageProps, useFrame, useTime } from "../frame.tsx";
import { eventInWords, gatewayProblem, subjectInWords } from "../sentences.ts";

/** What happened, the newest first, and whether the owner's channels got it. */
export function EventsPage({ state: { now } }: PageProps) {
  const { t } = useFrame();
  const time = useTime();
  // What lasts is in the status, so a change there means that there is a new event.
  const asked = useAnswer("/api/history", { fresh: now.status.events[0]?.id });
  const { channels, quiet } = now.status.notify;
  return (
    <>
      <div class="row">
        <h1>{t("events.title")}</h1>
        <p class="muted">{t("events.lead")}</p>
      </div>
      <Panel name="events" title={t("events.list")}>
        <Answered asked={asked}>
          {({ events }) =>
            events.length === 0 ? (
              <p class="empty">{t("events.none")}</p>
            ) : (
              <ul class="list">
                {events.toReversed().map((event) => {
                  const { id, at, severity, subject, state, muted, active } = event;
                  const { text, next } = eventInWords(event, time, t);
                  return (
                    <Item
                      key={id}
                      severity={state === "ended" ? "info" : severity}
                      name={
                        <>
                          <Moment at={at} /> <b>{subjectInWords(subject, t)}</b>
                        </>
                      }
                      tags={[
                        active ? t("events.active") : null,
                        state === "ended" ? t("events.ended") : null,
                        muted ? t("events.muted") : null,
                      ]}
                      text={text}
                      next={next}
                    />
                  );
                })}
              </ul>
            )
          }
        </Answered>
      </Panel>
      <Panel
        name="channels"
        title={t("events.channels")}
        aside={quiet ? <span class="tag">{t("events.quiet")}</span> : null}
      >
        <ul class="list">
          {channels.map(({ name, kind, state, why, next, waiting, lost }) => (
            <Item
              key={name}
              severity={state === "ok" ? "info" : "warning"}
              name={<b>{name}</b>}
              tags={[
                kind,
                t(`events.channel.${state}`),
                waiting > 0 ? t("events.waiting", { n: waiting }) : null,
                lost > 0 ? t("events.lost", { n: lost }) : null,
              ]}
              text={state === "held" ? t("card.held.text") : why === null ? null : gatewayProblem(why, t)}
              next={next}
            />
          ))}
          <li>
            {t("events.try")} <Command text={advice.notifyTest()} />
          </li>
        </ul>
      </Panel>
    </>
  );
}

interface ItemProps {
  readonly severity: string;
  readonly name: ComponentChildren;
  /** null: nothing to say. So of the others. */
  readonly tags: readonly (string | null)[];
  readonly text: string | null;
  readonly next: string | null;
}

function Item({ severity, name, tags, text, next }: ItemProps) {
  return (
    <li data-severity={severity}>
      <p class="row">
        {name}
        {tags.map((tag) => (tag === null ? null : <span class="tag">{tag}</span>))}
      </p>
      {text === null ? null : <p>{text}</p>}
      <NextStep text={next} />
    </li>
  );
}
