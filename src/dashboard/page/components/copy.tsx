import { useEffect, useState } from "preact/hooks";
import { useFrame } from "../frame.tsx";

interface CopyProps {
  readonly text: string;
  /** What it is, for who cannot see it beside the button. */
  readonly what: string;
}

export function Copy({ text, what }: CopyProps) {
  const { t } = useFrame();
  const [outcome, setOutcome] = useState<"copied" | "copy-failed" | null>(null);
  useEffect(() => {
    if (outcome === null) return;
    const timer = setTimeout(() => setOutcome(null), 2500);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = () => {
    navigator.clipboard.writeText(text).then(
      () => setOutcome("copied"),
      () => setOutcome("copy-failed"),
    );
  };
  return (
    <button type="button" class="plain copy" onClick={copy}>
      <span aria-live="polite">{outcome === null ? t("frame.copy") : t(`frame.${outcome}`)}</span>
      <span class="visually-hidden"> {what}</span>
    </button>
  );
}

/** A command to type into a terminal. */
export function Command({ text }: { readonly text: string }) {
  return (
    <span class="command">
      <code>{text}</code> <Copy text={text} what={text} />
    </span>
  );
}

/** What to do next, as the daemon says it: mostly a command. */
export function NextStep({ text }: { readonly text: string | null }) {
  if (text === null) return null;
  return <p class="next">{/^keybearer [^;]+$/.test(text) ? <Command text={text} /> : text}</p>;
}
