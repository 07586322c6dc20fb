import { useFrame } from "../frame.tsx";
import type { Answer } from "../use-answer.ts";

/** Why there is no answer, or no newer one, and a button that asks again. */
export function NotLoaded({ asked: { failure, again } }: { readonly asked: Answer<unknown> }) {
  const { t } = useFrame();
  if (failure === null) return null;
  return (
    <p class="notice" role="alert">
      {t("frame.failed", { why: failure })}{" "}
      <button type="button" class="plain" onClick={again}>
        {t("frame.again")}
      </button>
    </p>
  );
}
