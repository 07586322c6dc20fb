import type { ComponentChildren } from "preact";
import type { Action } from "../../actions/action.ts";
import { useAct } from "../act.ts";
import type { ActionForm } from "../action-form.ts";

interface ActionButtonProps {
  readonly action: Action | ActionForm;
  readonly look?: "plain" | "plain danger" | "primary";
  /** What it acts on, for who does not see what it stands beside. */
  readonly what?: string;
  readonly children: ComponentChildren;
}

/** Asks what an action needs, and shows what it would do; see ActionDialog. */
export function ActionButton({ action, look = "plain", what, children }: ActionButtonProps) {
  const act = useAct();
  return (
    <button type="button" class={look} onClick={() => act(action)}>
      {children}
      {what === undefined ? null : <span class="visually-hidden"> {what}</span>}
    </button>
  );
}
