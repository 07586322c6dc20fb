import type { ComponentChildren } from "preact";
import type { Action } from "../../actions/action.ts";
import { useAct } from "../act.ts";

interface ActionButtonProps {
  readonly action: Action;
  readonly primary?: boolean;
  readonly children: ComponentChildren;
}

/** Shows what an action would do; see ActionDialog. */
export function ActionButton({ action, primary = false, children }: ActionButtonProps) {
  const act = useAct();
  return (
    <button type="button" class={primary ? "primary" : "plain"} onClick={() => act(action)}>
      {children}
    </button>
  );
}
