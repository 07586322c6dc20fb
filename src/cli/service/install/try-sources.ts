import type { Config, KeySource } from "../../../config/schema.ts";
import type { KeyState } from "../../../config/snapshot.ts";
import type { CommandAs } from "../../../keys/sources/command.ts";
import {
  type SourceNote,
  serviceEnvironment,
  sourceNotes,
  type Tried,
} from "../../../service/key-sources.ts";
import type { ServiceManager } from "../../../service/manager.ts";
import type { ServiceSpec } from "../../../service/spec.ts";
import { commandTrial } from "../../../service/systemd/command-trial.ts";
import { readProperties } from "../../../service/systemd/systemd-answers.ts";
import { UNIT } from "../../../service/systemd/systemd-steps.ts";
import { clearedBy } from "../../../service/systemd/unit.ts";
import { template } from "../../../service/template.ts";
import { readKeysHere } from "../../doctor/keys-here.ts";
import type { Scene } from "../scene.ts";

export interface Sources {
  readonly notes: readonly SourceNote[];
  /** No tool that is enabled would have a key. */
  readonly none: boolean;
}

interface Trying {
  readonly config: Config;
  readonly spec: ServiceSpec;
  /** The service runs, and has read them itself. */
  readonly running: boolean;
}

/**
 * Reads every key as the service will: with its variables and not the shell's, confined as it will be, and held to the
 * same trust. While the service runs, only what needs no program and no finger is looked at.
 */
export async function trySources(scene: Scene, manager: ServiceManager, trying: Trying): Promise<Sources> {
  const { paths, env } = scene;
  const { config, spec, running } = trying;
  const tools = Object.values(config.tools).filter(({ enabled, watchOnly }) => enabled && !watchOnly);
  const consoles = consoleVariables(config);
  const names = [...tools.map(({ key }) => key), ...consoles.map(({ source }) => source)].flatMap((source) =>
    source.kind === "env" ? [source.name] : [],
  );
  const seen = serviceEnvironment(spec, {
    ...{ kind: manager.kind, shell: env, given: await manager.environment(names) },
    cleared: clearedBy(template("keybearer.service")),
  });
  const starts = !running && tools.some(({ key }) => key.kind === "command");
  const as = starts && manager.kind === "systemd" ? await confinedAs(scene, spec) : undefined;
  const keys = await readKeysHere({ config, paths, env: seen, running, as });
  const deps = { kind: manager.kind, shell: env, confined: as !== undefined };
  try {
    const tried: Tried[] = tools
      .filter(({ key }) => !running || (key.kind !== "command" && key.kind !== "keychain"))
      .map((tool) => ({
        ...{ whose: `tool ${tool.name}`, tool: tool.name, source: tool.key },
        state: keys.keyOf(tool),
      }));
    const toolNotes = sourceNotes(tried, deps);
    const absent = consoles
      .filter(({ source }) => (seen[source.name] ?? "") === "")
      .map(({ whose, source }) => ({ ...{ whose, tool: null, source, state: NOT_SET } }));
    return {
      notes: [...toolNotes, ...sourceNotes(absent, deps)],
      none: tools.length > 0 && toolNotes.filter(({ missing }) => missing).length === tools.length,
    };
  } finally {
    keys.close();
  }
}

const TRIAL_MS = 10_000;

/** How a command is started to be confined as in the unit; undefined: this machine cannot try that. */
async function confinedAs({ run, env }: Scene, spec: ServiceSpec): Promise<CommandAs | undefined> {
  // What a drop-in of the person's grants holds for the trial, too.
  const shown = await run(["systemctl", "--user", "show", UNIT, "--property=ReadWritePaths"], {
    timeoutMs: TRIAL_MS,
  });
  const alsoWritable = (readProperties(shown.stdout).get("ReadWritePaths") ?? "")
    .split(" ")
    .filter((folder) => /^-?\//.test(folder));
  const argvOf = commandTrial({ template: template("keybearer.service"), spec, alsoWritable });
  const works = await run(argvOf(["/bin/true"], []), { timeoutMs: TRIAL_MS });
  if (works.code !== 0) return undefined;
  return (argv, withhold) => ({
    argv: argvOf(argv, withhold),
    env: { ...env, LC_ALL: "C", SYSTEMD_COLORS: "0" },
  });
}

type Variable = KeySource & { kind: "env" };

function consoleVariables({ gateways }: Config): { readonly whose: string; readonly source: Variable }[] {
  return Object.values(gateways).flatMap(({ name, console }) => {
    const sources = (console?.logins ?? []).flatMap((login) => [
      login.password,
      login.accessToken,
      login.refreshToken,
    ]);
    return sources.flatMap((source) =>
      source?.kind === "env" ? [{ whose: `the console of ${name}`, source }] : [],
    );
  });
}

const NOT_SET: KeyState = { state: "unavailable", reason: "not set" };
