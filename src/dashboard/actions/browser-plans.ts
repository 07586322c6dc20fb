import { actionChange } from "../../control/reach.ts";
import { advice } from "../../core/advice.ts";
import { HttpError } from "../../core/errors.ts";
import type { ActionOf } from "./action.ts";
import { DONE, type Plan, type PlanDeps } from "./plan.ts";

/** A remembered browser outlives every session, so a stolen session must not be able to do this. */
export function planRemember(
  { bookmarks, origin }: PlanDeps,
  { kind, name, public_key }: ActionOf<"remember-browser">,
): Plan {
  const browser = { name, public_key, origin };
  const fingerprint = bookmarks.check(browser);
  return {
    what: `remember the browser ${name}, which then opens the dashboard without a terminal`,
    change: actionChange(kind),
    diff: [`+ browser ${name}`, `+ key ${fingerprint}`, `+ opens ${origin}`],
    undo: advice.revokeBrowser(name),
    async run() {
      await bookmarks.remember(browser);
      return DONE;
    },
  };
}

export function planRevokeBrowser({ bookmarks }: PlanDeps, { kind, name }: ActionOf<"revoke-browser">): Plan {
  return {
    what: `revoke the remembered browser ${name}`,
    change: actionChange(kind),
    diff: [],
    undo: null,
    async run() {
      if ((await bookmarks.revoke(name)) === null)
        throw new HttpError(404, `no browser called ${name} is remembered`);
      return DONE;
    },
  };
}
