import type { Change } from "../config/compare.ts";
import { HttpError } from "../core/errors.ts";
import { isObject } from "../core/json.ts";

/**
 * What a command, a route or an action can do to what tools and keys may do. depends: its values decide, see
 * compareConfigs() and the dashboard's plans.
 */
export type Reach = "reads" | Change | "depends";

/**
 * The one table of it, by the command's name, the control socket's route (as in routes.ts), the dashboard's route or the
 * kind of a dashboard's action. What is not certain to narrow or to keep widens: a person confirms that.
 */
export const REACH: Readonly<Record<string, Reach>> = {
  // Commands.
  adopt: "widens",
  check: "reads",
  completion: "reads",
  "config edit": "widens",
  confirm: "widens",
  doctor: "reads",
  "events list": "reads",
  "events mute": "widens",
  "gateways add": "widens",
  "gateways list": "reads",
  help: "reads",
  init: "widens",
  "keys delete": "narrows",
  "keys disable": "narrows",
  "keys enable": "widens",
  "keys list": "reads",
  logs: "reads",
  "metrics token": "widens",
  mirror: "reads",
  "mirror ack": "widens",
  "mirror diff": "reads",
  "mirror login": "widens",
  "mirror show": "reads",
  "mirror sync": "keeps",
  models: "reads",
  "notify test": "keeps",
  open: "keeps",
  run: "keeps",
  "service install": "keeps",
  "service logs": "reads",
  "service restart": "keeps",
  "service status": "reads",
  "service uninstall": "narrows",
  "service update": "keeps",
  "sessions allow": "widens",
  "sessions lift": "depends",
  "sessions list": "reads",
  "sessions show": "reads",
  "sessions stop": "narrows",
  start: "keeps",
  status: "reads",
  stop: "narrows",
  "tools add": "widens",
  "tools disable": "narrows",
  "tools enable": "widens",
  "tools lift": "depends",
  "tools list": "reads",
  "tools remove": "narrows",
  "tools rename": "keeps",
  "tools revoke": "depends",
  "tools rotate": "keeps",
  "tools set": "depends",
  "tools token": "widens",
  "tools tokens": "reads",
  trust: "widens",
  usage: "reads",
  "usage ack-model": "widens",
  "usage export": "reads",
  "usage rebuild": "keeps",
  "usage show": "reads",
  "usage tail": "reads",
  use: "widens",

  // Routes of the control socket.
  "GET /browsers": "reads",
  "GET /config": "reads",
  "GET /confirmations": "reads",
  "GET /confirmed/:name": "widens",
  "GET /events": "reads",
  "GET /events/:name": "reads",
  "GET /held": "reads",
  "GET /held/:name": "reads",
  "GET /keys": "reads",
  "GET /mirror": "reads",
  "GET /mirrordiff": "reads",
  "GET /models": "reads",
  "GET /models/:name": "reads",
  "GET /probes": "reads",
  "GET /sessions": "reads",
  "GET /status": "reads",
  "GET /tail": "reads",
  "GET /usageindex": "reads",
  "POST /ack": "widens",
  "POST /changekey": "depends",
  "POST /claim/:name": "widens",
  "POST /compared": "reads",
  "POST /config": "depends",
  "POST /confirm/:name": "widens",
  "POST /consolekey/:name": "reads",
  "POST /createkey/:name": "widens",
  "POST /cut/:name": "narrows",
  "POST /deletekey/:name": "narrows",
  "POST /enablekey/:name": "depends",
  "POST /forget": "widens",
  "POST /index": "keeps",
  "POST /lift/:name": "depends",
  "POST /liftsession/:name": "depends",
  "POST /login/:name": "widens",
  "POST /mute": "widens",
  "POST /notify/test": "keeps",
  "POST /open": "keeps",
  "POST /rebuild": "keeps",
  "POST /refreshkeys": "keeps",
  "POST /release/:name": "widens",
  "POST /rename/:name": "keeps",
  "POST /revokebrowser/:name": "narrows",
  "POST /rotate/:name": "keeps",
  "POST /rotation/:name": "reads",
  "POST /stop": "narrows",
  "POST /stopsession/:name": "depends",
  "POST /sync/:name": "keeps",
  "POST /trust": "widens",
  "POST /trust/:name": "widens",

  // Routes of the dashboard. Its two that change something follow the table of its actions.
  "GET /api/bill": "reads",
  "GET /api/browsers": "reads",
  "GET /api/csv": "reads",
  "GET /api/events": "reads",
  "GET /api/history": "reads",
  "GET /api/mirror": "reads",
  "GET /api/models/:name": "reads",
  "GET /api/now": "reads",
  "GET /api/records": "reads",
  "GET /api/records/:name": "reads",
  "GET /api/tools/:name": "reads",
  "GET /api/usage": "reads",
  "POST /api/challenge": "keeps",
  "POST /api/plan": "reads",
  "POST /api/run": "depends",
  "POST /api/session": "keeps",

  // Actions of the dashboard.
  "action acknowledge": "widens",
  "action allow-session": "widens",
  "action create": "widens",
  "action disable": "narrows",
  "action enable": "widens",
  "action give": "widens",
  "action give-session": "widens",
  "action remember-browser": "widens",
  "action revoke": "depends",
  "action revoke-browser": "narrows",
  "action rotate": "keeps",
  "action set": "depends",
  "action stop-session": "narrows",
  "action sync": "keeps",
  "action take-back": "narrows",
  "action token": "widens",
  "action trust": "widens",
};

/** Who asks over a control socket. The kernel has let only this user open it. */
export interface Caller {
  /** An owner of the system service, who may not do what widens. null: the user who may do everything. */
  readonly owner: string | null;
}

/** An owner asked for something that only root may do. */
export class NeedsRoot extends HttpError {
  constructor(message: string) {
    super(403, message);
  }
}

/** What a request to a route of the control socket does. What is not certain to narrow or to keep widens. */
export function routeReach(route: string, body: unknown): Exclude<Reach, "depends"> {
  const reach = REACH[route] ?? "widens";
  return reach === "depends" ? bodyReach(route, isObject(body) ? body : {}) : reach;
}

function bodyReach(route: string, body: Readonly<Record<string, unknown>>): Change {
  switch (route) {
    // The route itself compares the text with the one in force.
    case "POST /config":
      return "keeps";
    case "POST /lift/:name":
    case "POST /liftsession/:name":
      return body.amount === 0 ? "narrows" : "widens";
    case "POST /stopsession/:name":
      return body.stopped === true ? "narrows" : "widens";
    case "POST /enablekey/:name":
      return body.enabled === false ? "narrows" : "widens";
    case "POST /changekey":
      return body.action === "disable" || body.action === "delete" ? "narrows" : "widens";
    default:
      return "widens";
  }
}

/** What an action of the dashboard does whose values do not matter. */
export function actionChange(kind: string): Change {
  const reach = REACH[`action ${kind}`];
  return reach === "narrows" || reach === "keeps" ? reach : "widens";
}
