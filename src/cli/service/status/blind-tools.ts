import type { Config } from "../../../config/schema.ts";
import type { ServiceState } from "../../../service/manager.ts";
import type { ServiceNote } from "./service-note.ts";

/** Those that are recognised by the program that calls. */
export function toolsByProcess({ tools }: Config): string[] {
  return Object.values(tools).flatMap(({ name, process }) => (process === null ? [] : [name]));
}

/**
 * Out of a user namespace no other process can be looked at: a `process:` that came after the installation keeps its
 * tool out, and nothing else would say why.
 */
export function blindNote(config: Config, { file, inNamespace }: ServiceState): ServiceNote | null {
  const names = toolsByProcess(config);
  const blind = inNamespace ?? (file.kind === "ours" && file.unit.namespaces);
  if (!blind || names.length === 0) return null;
  const whose = names.length === 1 ? `tool ${names[0]} has` : `tools ${names.join(", ")} have`;
  const what = `${whose} process:, and the unit was written for a config.yaml without: out of its namespaces no program is recognised`;
  return { id: "process", grave: true, what, next: "keybearer service install" };
}
