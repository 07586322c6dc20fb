import { quoteForShell } from "./display.ts";
import type { Paths } from "./paths.ts";

/**
 * The commands that messages advise. Every message takes its command from here, so that test/advice.long.test.ts can
 * execute each of them in the situation that prints it. A function that is added here needs a case there.
 */
export const advice = {
  // The program, config.yaml and the daemon.
  run: () => "keybearer run",
  start: () => "keybearer start",
  stop: () => "keybearer stop",
  logs: () => "keybearer logs",
  runWithout: (variable: string) => `env -u ${variable} keybearer run`,
  init: () => "keybearer init",
  initWithKey: () => "keybearer init --gateway https://gateway.example.com/v1 --tool codex --key-stdin",
  check: (file: string | null = null) => `keybearer check${file === null ? "" : ` ${file}`}`,
  checkHelp: () => "keybearer help check",
  status: () => "keybearer status",
  doctor: () => "keybearer doctor",
  open: () => "keybearer open",
  confirm: () => "keybearer confirm",
  browsers: () => "keybearer open --list",
  revokeBrowser: (name: string) => `keybearer open --revoke ${name}`,
  editConfig: () => "keybearer config edit",
  addGateway: () => "keybearer gateways add <name> <url>",

  // Tools, their keys and tokens.
  tools: () => "keybearer tools",
  addTool: (tool: string, gateway: string | null = null) =>
    `keybearer tools add ${tool}${gateway === null ? "" : ` --gateway ${gateway}`}`,
  addToolWithKey: (tool: string, gateway: string | null) => `${advice.addTool(tool, gateway)} --key-stdin`,
  /** group null: the console has none. */
  createKey: (tool: string, gateway: string, group: string | null) =>
    `${advice.addTool(tool, gateway)} --create${group === null ? "" : ` --group ${group}`}`,
  enable: (tool: string) => `keybearer tools enable ${tool}`,
  disable: (tool: string) => `keybearer tools disable ${tool}`,
  disableNow: (tool: string) => `keybearer tools disable ${tool} --now`,
  remove: (tool: string) => `keybearer tools remove ${tool}`,
  changeAtGateway: (action: "disable" | "enable" | "remove", tool: string) =>
    `keybearer tools ${action} ${tool} --at-gateway`,
  newToken: (tool: string) => `keybearer tools token ${tool}`,
  tokens: (tool: string) => `keybearer tools tokens ${tool}`,
  revoke: (tool: string, token: string) => `keybearer tools revoke ${tool} ${token}`,
  rotate: (tool: string) => `keybearer tools rotate ${tool}`,
  rotateInto: (tool: string, store: "keychain" | "file") => `keybearer tools rotate ${tool} --store ${store}`,
  rotateByHand: (tool: string) => `keybearer tools rotate ${tool} --manual`,
  rotateAnyway: (tool: string) => `keybearer tools rotate ${tool} --force`,
  rotateWithKey: (tool: string) => `keybearer tools rotate ${tool} --key-stdin`,
  /** amount null: as much as the last refused request needs. */
  lift: (tool: string, kind: string, amount: string | null = null) =>
    `keybearer tools lift ${tool} --${kind}${amount === null ? "" : ` ${amount}`}`,
  /** @param settings such as limits.spend=10/day, quoted for a shell */
  setTool: (tool: string, settings: string) => `keybearer tools set ${tool} ${settings}`,
  limitSpend: (tool: string, amount = "10") => `keybearer tools set ${tool} limits.spend=${amount}/day`,
  takeBackLift: (tool: string) => `keybearer tools lift ${tool} --take-back`,
  releaseMachine: (tool: string, machine: string) => `keybearer tools lift ${tool} --machine ${machine}`,
  trust: (name: string) => `keybearer trust ${name}`,
  trustAll: () => "keybearer trust --all",
  models: (tool: string) => `keybearer models --tool ${tool}`,

  // Clients.
  clients: () => "keybearer use --for list",
  use: (tool: string, client: string | null = null) => `keybearer use ${tool}${forClient(client)}`,
  useNewToken: (tool: string, client: string | null) =>
    `keybearer use ${tool}${forClient(client)} --new-token`,
  useWrite: (tool: string, client: string | null) => `keybearer use ${tool}${forClient(client)} --write`,
  useUndo: (tool: string, client: string) => `keybearer use ${tool}${forClient(client)} --undo`,
  adopt: () => "keybearer adopt",
  adoptWrite: () => "keybearer adopt --write",
  adoptUndo: () => "keybearer adopt --undo",

  // Usage.
  usage: () => "keybearer usage",
  usageByModel: () => "keybearer usage --by model",
  usageTail: () => "keybearer usage tail",
  usageExport: (since: string) => `keybearer usage export --since ${since}`,
  acknowledgeModel: (asked: string, answered: string) =>
    `keybearer usage ack-model ${asArguments(asked, answered)}`,
  metricsToken: () => "keybearer metrics token",
  usageRebuild: () => "keybearer usage rebuild",

  // Alerts.
  notifyTest: (channel: string | null = null) =>
    `keybearer notify test${channel === null ? "" : ` ${channel}`}`,

  // Sessions.
  sessions: () => "keybearer sessions",
  /** amount null: as much as a session has from the start. */
  liftSession: (session: string, kind: string, amount: string | null = null, tool: string | null = null) =>
    `keybearer sessions lift ${nameSession(session, tool)} --${kind}${amount === null ? "" : ` ${amount}`}`,
  takeBackSessionLift: (session: string, tool: string | null = null) =>
    `keybearer sessions lift ${nameSession(session, tool)} --take-back`,
  allowSession: (session: string, tool: string | null = null) =>
    `keybearer sessions allow ${nameSession(session, tool)}`,

  // Events.
  events: () => "keybearer events",
  /** The subject's events are sent again. */
  unmute: (subject: string) => `keybearer events mute ${subject} --off`,

  // The console.
  keys: () => "keybearer keys",
  deleteKey: (key: string) => `keybearer keys delete ${key}`,
  mirror: () => "keybearer mirror",
  mirrorDiff: () => "keybearer mirror diff",
  mirrorShow: (row: string) => `keybearer mirror show ${row}`,
  mirrorSync: (gateway: string) => `keybearer mirror sync ${gateway}`,
  mirrorAck: (gateway: string | null) => `keybearer mirror ack${gateway === null ? "" : ` ${gateway}`}`,
  mirrorLogin: (gateway: string | null = null, account: string | null = null) =>
    `keybearer mirror login${gateway === null ? "" : ` ${gateway}`}${account === null ? "" : ` --account ${account}`}`,
  mirrorRefreshToken: (gateway: string) => `keybearer mirror login ${gateway} --refresh-token`,

  // The service.
  serviceInstall: (config: string | null = null) =>
    `keybearer service install${config === null ? "" : ` --config ${config}`}`,
  serviceInstallAnyway: () => "keybearer service install --yes",
  serviceRestart: () => "keybearer service restart",
  serviceStatus: () => "keybearer service status",
  serviceLogs: () => "keybearer service logs",
  serviceUninstall: () => "keybearer service uninstall",
  systemService: (verb: string, owner: string | null = null) =>
    `sudo keybearer service ${verb} --system${owner === null ? "" : ` --owner ${owner}`}`,
  /** On macOS alone. */
  showLaunchDaemon: () => "keybearer service install --system --dry-run",
  /** A command that only root may run, such as `keybearer trust codex`. */
  asRoot: (command: string) => `sudo ${command}`,
  servicePurge: () => "keybearer service uninstall --purge",
  servicePurgeAnyway: () => "keybearer service uninstall --purge --yes",
} as const;

/** The same for a config.yaml that was named with --config. */
export function withConfig(
  command: string,
  { mode, explicit, config }: Pick<Paths, "mode" | "explicit" | "config">,
): string {
  return explicit && mode === "user" ? `${command} --config ${quoteForShell(config)}` : command;
}

/** Names that a gateway chose: one that looks like an option is none. */
function asArguments(...names: readonly string[]): string {
  const words = names.map(quoteForShell).join(" ");
  return names.some((name) => name.startsWith("-")) ? `-- ${words}` : words;
}

/** null: the tool's name says which client it is. */
function forClient(client: string | null): string {
  return client === null ? "" : ` --for ${client}`;
}

/** Tokens of several tools may have one name, and so may the sessions that are named after them. */
function nameSession(session: string, tool: string | null): string {
  return tool !== null && session.includes("/") ? `${session} --tool ${tool}` : session;
}
