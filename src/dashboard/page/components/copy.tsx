import { useEffect, useState } from "preact/hooks";
import { useFrame } from "../frame.tsx";

interface CopyProps {
  readonly text: string;
  /** What is copied, for who cannot see what the button stands beside. */
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
