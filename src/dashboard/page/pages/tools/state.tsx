import type { ToolSettings } from "../../../api.ts";
import { useFrame } from "../../frame.tsx";

/** Whether it works, and what it does now. */
export function State({ tool }: { readonly tool: ToolSettings }) {
  const { t } = useFrame();
  const { state, running, waiting } = tool;
  const notes = [
    ...(tool.watch_only ? [t("tools.watch-only")] : []),
    ...(running > 0 ? [t("tools.running", { n: running })] : []),
    ...(waiting > 0 ? [t("tools.waiting", { n: waiting })] : []),
  ];
  return (
    <>
      <span class="state" data-state={state}>
        {t(`state.${state}`)}
      </span>
      {notes.length === 0 ? null : <span class="small"> {notes.join(t("frame.comma"))}</span>}
    </>
  );
}
