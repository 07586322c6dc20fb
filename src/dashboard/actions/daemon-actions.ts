import type { HeldTool, TrustAnswer } from "../../control/routes.ts";
import { advice } from "../../core/advice.ts";
import { HttpError } from "../../core/errors.ts";
import type { KeyChange } from "../../lifecycle/lifecycle.ts";
import type { RotatableKey } from "../../lifecycle/renewal.ts";
import { amountInWords } from "../../limits/format.ts";
import type { NoteCode } from "../api.ts";
import { codedError } from "../http.ts";
import type { ActionOf } from "./action.ts";
import { call, DONE, type Done, type PlanDeps, type Planners } from "./plan.ts";

/* Actions that leave config.yaml as it is. The daemon does them as it does for the command. */

export const DAEMON_ACTIONS = {
  give: (deps, { tool, limit, amount }) => ({
    what: `give ${tool} ${amountInWords(limit, amount)} more`,
    undo: advice.takeBackLift(tool),
    run: () => done(deps, "POST /lift/:name", tool, { kind: limit, amount, until: null }),
  }),

  "take-back": (deps, { tool }) => ({
    what: `take back the extra allowances of ${tool}`,
    async run() {
      const limits = deps.controls.reload.snapshot.config.tools[tool]?.limits;
      for (const kind of ["requests", "tokens", "spend"] as const) {
        const hasLimit = (limits?.[kind].length ?? 0) > 0;
        if (hasLimit) await call(deps, "POST /lift/:name", tool, { kind, amount: 0, until: null });
      }
      return DONE;
    },
  }),

  async rotate(deps, { tool }) {
    const found = deps.controls.reload.snapshot.config.tools[tool];
    const options = { store: null, force: false };
    const { value: listed } = await call<{ value: RotatableKey }>(
      deps,
      "POST /rotation/:name",
      tool,
      options,
    );
    if (listed.renewed !== null) {
      const problem =
        "the old key's expiry or quota is over, so a person must agree to what the new one gets";
      throw new HttpError(409, { problem, next: advice.rotate(tool) });
    }
    const moved = found?.key.kind === "literal" ? ", and move it from config.yaml to a file" : "";
    return {
      what: `rotate the key of ${tool} (${listed.key ?? "not shown"}) at the console of ${found?.gateway}${moved}`,
      async run() {
        const { value: rotated } = await call<{ value: KeyChange }>(
          deps,
          "POST /rotate/:name",
          tool,
          options,
        );
        const later = rotated.state === "retiring" ? ("old-key-later" satisfies NoteCode) : null;
        return { ...DONE, note: rotated.why ?? later };
      },
    };
  },

  "stop-session": (deps, action) => ({
    what: `stop session ${action.session} of ${action.tool}`,
    undo: advice.allowSession(action.session, action.tool),
    run: () => setStopped(deps, action, true),
  }),

  "allow-session": (deps, action) => ({
    what: `allow session ${action.session} of ${action.tool} again`,
    run: () => setStopped(deps, action, false),
  }),

  "give-session": (deps, { tool, session, limit, amount }) => ({
    what: `give session ${session} of ${tool} ${amountInWords(limit, amount)} more`,
    undo: advice.takeBackSessionLift(session, tool),
    run: () => done(deps, "POST /liftsession/:name", tool, { session, kind: limit, amount }),
  }),

  acknowledge: (deps, { alarm }) => ({
    what: `acknowledge ${alarm.count} foreign ${alarm.count === 1 ? "row" : "rows"} of key ${alarm.key} at ${alarm.gateway}`,
    async run() {
      const { acknowledged } = await call<{ acknowledged: number | null }>(deps, "POST /ack", "", alarm);
      if (acknowledged === null)
        throw codedError(
          409,
          "rows-changed",
          "there are other rows than the page showed: look at them again",
        );
      return DONE;
    },
  }),

  sync: (deps, { gateway }) => ({
    what: `read the console of ${gateway}`,
    run: () => done(deps, "POST /sync/:name", gateway, {}),
  }),

  /** What is held is shown in place of a difference, and only that is trusted. */
  async trust(deps, { name }) {
    const held = await call<HeldTool[]>(deps, "GET /held/:name", name, null);
    if (held.length === 0) throw codedError(409, "nothing-held", `nothing of ${name} is held`);
    return {
      what: `trust the change of ${name}`,
      diff: held.flatMap(({ tool, what, from, to }) => [`${tool}: ${what}`, `- ${from}`, `+ ${to}`]),
      async run() {
        const { granted, problems } = await call<TrustAnswer>(deps, "POST /trust/:name", name, held);
        if (problems.length > 0) throw new HttpError(409, problems.join("; "));
        if (granted.length === 0)
          throw codedError(409, "nothing-held", `nothing of ${name} is held any more`);
        return DONE;
      },
    };
  },

  /** A remembered browser outlives every session, so a stolen session must not be able to do this. */
  "remember-browser"({ bookmarks, origin }, { name, public_key }) {
    const browser = { name, public_key, origin };
    const fingerprint = bookmarks.check(browser);
    return {
      what: `remember the browser ${name}, which then opens the dashboard without a terminal`,
      diff: [`+ browser ${name}`, `+ key ${fingerprint}`, `+ opens ${origin}`],
      undo: advice.revokeBrowser(name),
      async run() {
        await bookmarks.remember(browser);
        return DONE;
      },
    };
  },

  "revoke-browser": (deps, { name }) => ({
    what: `revoke the remembered browser ${name}`,
    run: () => done(deps, "POST /revokebrowser/:name", name, {}),
  }),
} satisfies Partial<Planners>;

function setStopped(
  deps: PlanDeps,
  { tool, session }: ActionOf<"stop-session" | "allow-session">,
  stopped: boolean,
): Promise<Done> {
  return done(deps, "POST /stopsession/:name", tool, { session, stopped });
}

async function done(deps: PlanDeps, route: string, name: string, body: unknown): Promise<Done> {
  await call(deps, route, name, body);
  return DONE;
}
