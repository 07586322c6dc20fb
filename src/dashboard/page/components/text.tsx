import { useEffect, useState } from "preact/hooks";
import { localTime } from "../../../core/units.ts";
import type { ShownRecord } from "../../api.ts";
import { agoInWords, timeInWords } from "../format.ts";
import { useFrame, useTime } from "../frame.tsx";
import { filled, formOf, type MessageId, messagesOf, type Values } from "../messages/messages.ts";
import { refusalAdvice } from "../refusals.ts";
import { commandIn } from "../sentences.ts";

/* Texts with commands, moments and advice in them. */

/** A message whose `backticked` parts are what one types. Values are filled in after, so that they cannot add any. */
export function Text({ id, values = {} }: { readonly id: MessageId; readonly values?: Values }) {
  const { language } = useFrame();
  const parts = formOf(messagesOf(language)[id], values).split("`");
  return (
    <>
      {parts.map((part, at) => {
        const text = filled(part, values);
        if (at % 2 === 0) return text;
        return text.startsWith("keybearer ") ? <Command text={text} /> : <code>{text}</code>;
      })}
    </>
  );
}

/** When something happened, and all of it under the pointer. */
export function Moment({ at }: { readonly at: number }) {
  const time = useTime();
  return (
    <time dateTime={new Date(at).toISOString()} title={localTime(at)}>
      {timeInWords(at, time)}
    </time>
  );
}

/** How long ago; null: never. */
export function Ago({ at }: { readonly at: number | null }) {
  const { t } = useFrame();
  const time = useTime();
  if (at === null) return <>{t("tools.last-use.never")}</>;
  return (
    <span class="ago" title={localTime(at)}>
      {agoInWords(at, time, t)}
    </span>
  );
}

interface CopyProps {
  readonly text: string;
  /** What it is, for who cannot see it beside the button. */
  readonly what: string;
}

export function Copy({ text, what }: CopyProps) {
  const { t } = useFrame();
  const [outcome, setOutcome] = useState<"copy" | "copied" | "copy-failed">("copy");
  useEffect(() => {
    const timer = setTimeout(() => setOutcome("copy"), 2500);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = () => {
    navigator.clipboard.writeText(text).then(
      () => setOutcome("copied"),
      () => setOutcome("copy-failed"),
    );
  };
  return (
    <button type="button" class="copy" onClick={copy}>
      <span aria-live="polite">{t(`frame.${outcome}`)}</span>
      <span class="visually-hidden"> {what}</span>
    </button>
  );
}

/** A command to type into a terminal. */
export function Command({ text }: { readonly text: string }) {
  return (
    <span>
      <code>{text}</code> <Copy text={text} what={text} />
    </span>
  );
}

/** What to do next, as the daemon says it: mostly a command. Who does not read English gets the command alone. */
export function NextStep({ text }: { readonly text: string | null }) {
  const { language } = useFrame();
  if (text === null) return null;
  const command = commandIn(text);
  if (command === null) return <p class="next">{text}</p>;
  return (
    <p class="next">
      {language === "en" ? text.slice(0, -command.length) : null}
      <Command text={command} />
    </p>
  );
}

interface RefusalTextProps {
  readonly record: ShownRecord;
  readonly who?: string;
}

/** Why a request was refused, and what to do. Of a code of a newer daemon there is no more to say. */
export function RefusalText({ record, who }: RefusalTextProps) {
  const { t } = useFrame();
  const advice = refusalAdvice(record);
  return (
    <>
      <p>
        <b>{who}</b> {advice === null ? record.refusal : t(advice.problem)}
      </p>
      {advice?.next ? (
        <p class="next">
          <Text id={advice.next} values={advice.values} />
        </p>
      ) : null}
    </>
  );
}
