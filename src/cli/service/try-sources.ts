import type { Config } from "../../config/shape.ts";
import type { KeySource, KeyState } from "../../key-source.ts";
import { type SourceNote, serviceEnvironment, sourceNotes, type Tried } from "../../service/key-sources.ts";
import type { ServiceManager } from "../../service/manager.ts";
import type { ServiceSpec } from "../../service/spec.ts";
import { readKeysHere } from "../doctor/keys-here.ts";
import type { Scene } from "./scene.ts";

export interface Sources {
  readonly notes: readonly SourceNote[];
  /** No tool that is enabled would have a key. */
  readonly none: boolean;
}

/**
 * Reads every key as the service will: with its variables and not the shell's, and held to the same trust. While the
 * service runs it has read them itself; then only what needs no program and no finger is looked at.
 */
export async function trySources(
  { places, env }: Scene,
  manager: ServiceManager,
  {
    config,
    spec,
    running,
  }: { readonly config: Config; readonly spec: ServiceSpec; readonly running: boolean },
): Promise<Sources> {
  const tools = Object.values(config.tools).filter(({ enabled, watchOnly }) => enabled && !watchOnly);
  const consoles = consoleVariables(config);
  const names = [...tools.map(({ key }) => key), ...consoles.map(({ source }) => source)].flatMap((source) =>
    source.kind === "env" ? [source.name] : [],
  );
  const seen = serviceEnvironment(spec, await manager.environment(names), env);
  const keys = await readKeysHere({ config, places, env: seen, running });
  try {
    const tried: Tried[] = tools
      .filter(({ key }) => !running || (key.kind !== "command" && key.kind !== "keychain"))
      .map((tool) => ({
        ...{ whose: `tool ${tool.name}`, tool: tool.name, source: tool.key },
        state: keys.keyOf(tool),
      }));
    const toolNotes = sourceNotes(tried, { kind: manager.kind, shell: env });
    const absent = consoles
      .filter(({ source }) => (seen[source.name] ?? "") === "")
      .map(({ whose, source }) => ({ ...{ whose, tool: null, source, state: NOT_SET } }));
    return {
      notes: [...toolNotes, ...sourceNotes(absent, { kind: manager.kind, shell: env })],
      none: tools.length > 0 && toolNotes.filter(({ missing }) => missing).length === tools.length,
    };
  } finally {
    keys.close();
  }
}

type Variable = KeySource & { kind: "env" };

function consoleVariables({ gateways }: Config): { readonly whose: string; readonly source: Variable }[] {
  return Object.values(gateways).flatMap(({ name, console }) => {
    const { password, accessToken, refreshToken } = console?.login ?? {};
    return [password, accessToken, refreshToken].flatMap((source) =>
      source?.kind === "env" ? [{ whose: `the console of ${name}`, source }] : [],
    );
  });
}

const NOT_SET: KeyState = { state: "unavailable", reason: "not set" };
