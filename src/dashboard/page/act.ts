import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { amountInWords } from "../../limits/format.ts";
import type { Action } from "../actions/action.ts";
import type { ActionForm } from "./action-form.ts";
import type { Translate } from "./messages/messages.ts";

/** Asks what is still to be asked, shows what the action would do, and does it once the person agrees. */
export type Act = (asked: Action | ActionForm) => void;

export const ActContext = createContext<Act | null>(null);

export function useAct(): Act {
  const act = useContext(ActContext);
  if (act === null) throw new Error("an action is asked for outside of the page");
  return act;
}

/** What an action does, as a title and as a button's hidden text. */
export function titleOf(action: Action, t: Translate): string {
  switch (action.kind) {
    case "set":
    case "enable":
    case "disable":
    case "rotate":
    case "take-back":
    case "create":
      return t(`act.${action.kind}`, { tool: action.tool });
    case "token":
    case "revoke":
      return t(`act.${action.kind}`, { tool: action.tool, name: action.name });
    case "give":
      return t("act.give", { tool: action.tool, amount: amountInWords(action.limit, action.amount) });
    case "stop-session":
    case "allow-session":
      return t(`act.${action.kind}`, { tool: action.tool, session: action.session });
    case "give-session":
      return t("act.give-session", {
        tool: action.tool,
        session: action.session,
        amount: amountInWords(action.limit, action.amount),
      });
    case "acknowledge":
      return t("act.acknowledge", { key: action.alarm.key ?? "", n: action.alarm.count ?? 0 });
    case "sync":
      return t("act.sync", { gateway: action.gateway });
    case "trust":
    case "remember-browser":
    case "revoke-browser":
      return t(`act.${action.kind}`, { name: action.name });
  }
}
