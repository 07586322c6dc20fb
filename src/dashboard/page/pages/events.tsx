import { advice } from "../../../core/advice.ts";
import type { ListedEvent } from "../../../events/event.ts";
import type { ChannelStatus } from "../../../notify/status.ts";
import { Command, NextStep } from "../components/copy.tsx";
import { NotLoaded } from "../components/not-loaded.tsx";
import { timeInWords } from "../format.ts";
import { type PageProps, useFrame } from "../frame.tsx";
import { useAnswer } from "../use-answer.ts";
import { useTime } from "../use-time.ts";

/** What happened, the newest first, and whether the owner's channels got it. */
export function EventsPage({ state: { now } }: PageProps) {
  const { t, client } = useFrame();
  const time = useTime(60_000);
  // What lasts is in the status, so a change there means that there is a new event.
  const newest = now?.status.events[0]?.id ?? null;
  const asked = useAnswer((signal) => client.get("/api/history", undefined, signal), [newest]);
  const events = [...(asked.value?.events ?? [])].reverse();
  const channels = now?.status.notify.channels ?? [];
  return (
    <>
      <div class="page-head">
        <h1>{t("events.title")}</h1>
        <p class="muted">{t("events.lead")}</p>
      </div>
      <NotLoaded asked={asked} />
      <section class="panel" aria-labelledby="events-list">
        <header>
          <h2 id="events-list">{t("events.list")}</h2>
        </header>
        {events.length === 0 ? (
          <p class="empty">{t(asked.busy ? "frame.loading" : "events.none")}</p>
        ) : (
          <ul class="events">
            {events.map((event) => (
              <EventItem key={event.id} event={event} time={time} />
            ))}
          </ul>
        )}
      </section>
      <section class="panel" aria-labelledby="channels">
        <header>
          <h2 id="channels">{t("events.channels")}</h2>
          {now?.status.notify.quiet ? <span class="tag">{t("events.quiet")}</span> : null}
        </header>
        <ul class="events">
          {channels.map((channel) => (
            <Channel key={channel.name} channel={channel} />
          ))}
        </ul>
        <p class="body">
          {t("events.try")} <Command text={advice.notifyTest()} />
        </p>
      </section>
    </>
  );
}

function EventItem({ event, time }: { readonly event: ListedEvent; readonly time: number }) {
  const { t } = useFrame();
  const { at, severity, subject, message, next, state, muted, active } = event;
  return (
    <li data-severity={state === "ended" ? "info" : severity}>
      <p class="row">
        <time dateTime={new Date(at).toISOString()} class="muted">
          {timeInWords(at, time)}
        </time>
        <b>{subject}</b>
        {active ? <span class="tag">{t("events.active")}</span> : null}
        {state === "ended" ? <span class="tag">{t("events.ended")}</span> : null}
        {muted ? <span class="tag">{t("events.muted")}</span> : null}
      </p>
      <p>{message}</p>
      <NextStep text={next} />
    </li>
  );
}

function Channel({ channel }: { readonly channel: ChannelStatus }) {
  const { t } = useFrame();
  const { name, kind, state, why, next, waiting, lost } = channel;
  return (
    <li data-severity={state === "ok" ? "info" : "warning"}>
      <p class="row">
        <b>{name}</b>
        <span class="muted">{kind}</span>
        <span class="tag">{t(`events.channel.${state}`)}</span>
        {waiting > 0 ? <span class="muted">{t("events.waiting", { n: waiting })}</span> : null}
        {lost > 0 ? <span class="muted">{t("events.lost", { n: lost })}</span> : null}
      </p>
      {why === null ? null : <p>{why}</p>}
      <NextStep text={next} />
    </li>
  );
}
