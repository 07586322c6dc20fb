import type { Config, Tool } from "../../config/schema.ts";
import { consoleSources } from "../../config/snapshot.ts";
import { advice } from "../../core/advice.ts";
import { type Problem, quoteForShell } from "../../core/display.ts";
import type { ServiceSpec } from "../../service/spec.ts";
import type { ServiceContext, ServiceManager } from "./context.ts";

/* The variables with keys and secrets that a service will not have: it does not see those of the shell. */

interface VariableNote extends Problem {
  /** tool codex, the console of main */
  readonly whose: string;
}

interface VariableCheck {
  readonly notes: readonly VariableNote[];
  /** No enabled tool would have a key. */
  readonly none: boolean;
}

/** Whether the service will see the variables that config.yaml names, now and after the next login. */
export async function checkVariables(
  { env: shell }: ServiceContext,
  manager: ServiceManager,
  config: Config,
  spec: ServiceSpec,
): Promise<VariableCheck> {
  const tools = usedTools(config);
  const wanted = [...tools.flatMap(keyVariable), ...consoleVariables(config), ...storeVariables(config)];
  const given = await manager.environment(wanted.map(({ name }) => name));
  const unset = manager.kind === "systemd" ? manager.unsetVariables() : [];
  const seen = serviceEnvironment(spec, manager.kind, given, unset, shell);
  const notes = wanted.flatMap((variable) => {
    if (!seen[variable.name]) return [missingNote(variable, shell)];
    return variable.tool === null ? [] : [sessionNote(variable, manager.kind)];
  });
  const missing = wanted.filter(({ tool, name }) => tool !== null && !seen[name]);
  return { notes, none: tools.length > 0 && missing.length === tools.length };
}

/** The tools that need a key. */
export function usedTools({ tools }: Config): Tool[] {
  return Object.values(tools).filter(({ enabled, watchOnly }) => enabled && !watchOnly);
}

interface SecretVariable {
  readonly whose: string;
  readonly name: string;
  /** Whose key it has, as it can be typed; null: another secret. */
  readonly tool: string | null;
  /** What to do if a service does not see it. */
  readonly next: string;
}

function keyVariable({ name: tool, key }: Tool): SecretVariable[] {
  if (key.kind !== "env") return [];
  const typed = quoteForShell(tool);
  return [{ whose: `tool ${tool}`, name: key.name, tool: typed, next: advice.rotate(typed) }];
}

function consoleVariables({ gateways }: Config): SecretVariable[] {
  return Object.values(gateways).flatMap((gateway) => {
    const whose = `the console of ${gateway.name}`;
    const next = advice.mirrorLogin();
    return consoleSources(gateway).flatMap(({ source }) =>
      source.kind === "env" ? [{ whose, name: source.name, tool: null, next }] : [],
    );
  });
}

function storeVariables({ shared }: Config): SecretVariable[] {
  const sources = { "shared.store.password": shared?.store.password, "shared.secret": shared?.secret };
  return Object.entries(sources).flatMap(([setting, source]) => {
    if (source?.kind !== "env") return [];
    const next = `write it to a file that only you can read, and set ${setting} to file:/PATH`;
    return [{ whose: "the shared store", name: source.name, tool: null, next }];
  });
}

/** What launchd gives every agent. systemd lists all that it gives. */
const LOGIN_VARIABLES = ["HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "SSH_AUTH_SOCK", "SECURITYSESSIONID"];

/** The variables that the service will see. `given`: what the manager gives it. `unset`: what the unit removes. */
export function serviceEnvironment(
  spec: ServiceSpec,
  kind: ServiceManager["kind"],
  given: Readonly<Record<string, string>>,
  unset: readonly string[],
  shell: NodeJS.ProcessEnv,
): Record<string, string> {
  const seen: Record<string, string> = {};
  if (kind === "launchd")
    for (const name of LOGIN_VARIABLES) if (shell[name] !== undefined) seen[name] = shell[name];
  for (const [name, value] of Object.entries(given)) if (!unset.includes(name)) seen[name] = value;
  return { ...seen, ...spec.environment };
}

function missingNote({ whose, name, tool, next }: SecretVariable, shell: NodeJS.ProcessEnv): VariableNote {
  if (!shell[name]) return { whose, problem: `env:${name} is not set for a service`, next };
  const problem = `env:${name} is set in this shell, which a service does not see`;
  // From the variable straight into the key store: the key is neither typed nor an argument.
  return { whose, problem, next: tool === null ? next : `printenv ${name} | ${advice.rotateWithKey(tool)}` };
}

/** A variable of the shell ends with the shell. One that was given to the manager ends with the session. */
function sessionNote({ whose, name, next }: SecretVariable, kind: ServiceManager["kind"]): VariableNote {
  const manager = kind === "systemd" ? "the user manager" : "launchd";
  return {
    whose,
    problem: `env:${name} is set in ${manager} now, and may be gone after the next login`,
    next,
  };
}
