import { isKind, isPositive, isSession } from "../../control/body.ts";
import type { HeldTool, TrustAnswer } from "../../control/routes.ts";
import { advice } from "../../core/advice.ts";
import { HttpError } from "../../core/errors.ts";
import type { KeyChange } from "../../lifecycle/lifecycle.ts";
import type { RotatableKey } from "../../lifecycle/renewal.ts";
import { amountInWords } from "../../limits/format.ts";
import type { NoteCode } from "../api.ts";
import { failure } from "../failure.ts";
import { actionKind, call, type Done, isLine, isPlainName, type PlanDeps } from "./action.ts";

/* Actions that leave config.yaml as it is. The daemon does them as it does for the command. */

export const DAEMON_ACTIONS = {
  /** Requests, tokens or micro-dollars. */
  give: actionKind({ tool: isLine, limit: isKind, amount: isPositive }, (deps, { tool, limit, amount }) => ({
    what: `give ${tool} ${amountInWords(limit, amount)} more`,
    undo: advice.takeBackLift(tool),
    run: () => done(deps, "POST /lift/:name", tool, { kind: limit, amount, until: null }),
  })),

  /** All extra allowances. */
  "take-back": actionKind({ tool: isLine }, (deps, { tool }) => ({
    what: `take back the extra allowances of ${tool}`,
    async run() {
      const limits = deps.controls.reload.snapshot.config.tools[tool]?.limits;
      for (const kind of ["requests", "tokens", "spend"] as const) {
        const hasLimit = (limits?.[kind].length ?? 0) > 0;
        if (hasLimit) await call(deps, "POST /lift/:name", tool, { kind, amount: 0, until: null });
      }
      return {};
    },
  })),

  rotate: actionKind({ tool: isLine }, async (deps, { tool }) => {
    const found = deps.controls.reload.snapshot.config.tools[tool];
    const body = { store: null, force: false };
    const { value } = await call<{ value: RotatableKey }>(deps, "POST /rotation/:name", tool, body);
    if (value.renewed !== null) {
      const problem =
        "the old key's expiry or quota is over, so a person must agree to what the new one gets";
      throw new HttpError(409, { problem, next: advice.rotate(tool) });
    }
    const moved = found?.key.kind === "literal" ? ", and move it from config.yaml to a file" : "";
    return {
      what: `rotate the key of ${tool} (${value.key ?? "not shown"}) at the console of ${found?.gateway}${moved}`,
      async run() {
        const { value: rotated } = await call<{ value: KeyChange }>(deps, "POST /rotate/:name", tool, body);
        const later = rotated.state === "retiring" ? ("old-key-later" satisfies NoteCode) : null;
        return { note: rotated.why ?? later };
      },
    };
  }),

  "stop-session": actionKind({ tool: isLine, session: isSession }, (deps, { tool, session }) => ({
    what: `stop session ${session} of ${tool}`,
    undo: advice.allowSession(session, tool),
    run: () => done(deps, "POST /stopsession/:name", tool, { session, stopped: true }),
  })),

  "allow-session": actionKind({ tool: isLine, session: isSession }, (deps, { tool, session }) => ({
    what: `allow session ${session} of ${tool} again`,
    run: () => done(deps, "POST /stopsession/:name", tool, { session, stopped: false }),
  })),

  "give-session": actionKind(
    { tool: isLine, session: isSession, limit: isKind, amount: isPositive },
    (deps, { tool, session, limit, amount }) => ({
      what: `give session ${session} of ${tool} ${amountInWords(limit, amount)} more`,
      undo: advice.takeBackSessionLift(session, tool),
      run: () => done(deps, "POST /liftsession/:name", tool, { session, kind: limit, amount }),
    }),
  ),

  /** Rows as the page shows them, and no others. */
  acknowledge: actionKind(
    { gateway: isLine, key: isLine, certain: isBoolean, last_at: isPositive, count: isPositive },
    (deps, alarm) => ({
      what: `acknowledge ${alarm.count} foreign ${alarm.count === 1 ? "row" : "rows"} of key ${alarm.key} at ${alarm.gateway}`,
      async run() {
        const answer = await call<{ acknowledged: number | null }>(deps, "POST /ack", "", alarm);
        if (answer.acknowledged === null) throw failure(409, "rows-changed");
        return {};
      },
    }),
  ),

  sync: actionKind({ gateway: isLine }, (deps, { gateway }) => ({
    what: `read the console of ${gateway}`,
    run: () => done(deps, "POST /sync/:name", gateway, {}),
  })),

  /** What is held of a tool or a gateway is shown in place of a difference, and only that is trusted. */
  trust: actionKind({ name: isLine }, async (deps, { name }) => {
    const held = await call<HeldTool[]>(deps, "GET /held/:name", name, null);
    if (held.length === 0) throw failure(409, "nothing-held", name);
    return {
      what: `trust the change of ${name}`,
      diff: held.flatMap(({ tool, what, from, to }) => [`${tool}: ${what}`, `- ${from}`, `+ ${to}`]),
      async run() {
        const { granted, problems } = await call<TrustAnswer>(deps, "POST /trust/:name", name, held);
        if (problems.length > 0) throw new HttpError(409, problems.join("; "));
        if (granted.length === 0) throw failure(409, "nothing-held", name);
        return {};
      },
    };
  }),

  /**
   * The browser of the page, which then opens the dashboard without a terminal. It outlives every session, so a stolen session
   * must not be able to do this.
   */
  "remember-browser": actionKind(
    { name: isPlainName, public_key: isPublicKey },
    ({ bookmarks, origin }, asked) => {
      const browser = { ...asked, origin };
      const fingerprint = bookmarks.check(browser);
      return {
        what: `remember the browser ${browser.name}, which then opens the dashboard without a terminal`,
        diff: [`+ browser ${browser.name}`, `+ key ${fingerprint}`, `+ opens ${origin}`],
        undo: advice.revokeBrowser(browser.name),
        async run() {
          await bookmarks.remember(browser);
          return {};
        },
      };
    },
  ),

  "revoke-browser": actionKind({ name: isPlainName }, (deps, { name }) => ({
    what: `revoke the remembered browser ${name}`,
    run: () => done(deps, "POST /revokebrowser/:name", name, {}),
  })),
};

async function done(deps: PlanDeps, route: string, name: string, body: unknown): Promise<Done> {
  await call(deps, route, name, body);
  return {};
}

function isBoolean(value: unknown): value is boolean {
  return typeof value === "boolean";
}

/** In base64url, as long as one of P-256 is. */
function isPublicKey(value: unknown): value is string {
  return isLine(value) && /^[\w-]{122}$/.test(value);
}
