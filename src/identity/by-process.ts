import { realpath } from "node:fs/promises";
import type { Snapshot } from "../config/snapshot.ts";
import { refuse } from "../refusal.ts";
import type { Identified } from "./identify.ts";
import type { Owner } from "./process.ts";

/**
 * Brings the program that owns the connection into the answer of identify(). A tool with `process` and no token is known
 * by its program alone; with both, both must hold. Weaker than a token: whoever may run the program may be the tool.
 */
export async function confirmProcess(
  named: Identified,
  snapshot: Snapshot,
  findOwner: () => Promise<Owner | null>,
): Promise<Identified> {
  if (named.ok) {
    const { process, name } = named.tool;
    if (process === null) return named;
    const owner = await findOwner();
    if (await isProgram(owner, process)) return named;
    const message =
      `the token of tool ${name} came from ${owner?.program ?? "a program that cannot be told"}, ` +
      `and tools.${name}.process lets in ${process} only`;
    return { ok: false, refusal: refuse("token-unknown", message), anonymous: false };
  }
  const tools = snapshot.processTools.filter((tool) => tool.tokens.length === 0);
  if (!named.anonymous || tools.length === 0) return named;
  const owner = await findOwner();
  for (const tool of tools) {
    if (tool.process !== null && (await isProgram(owner, tool.process))) return { ok: true, tool };
  }
  return named;
}

async function isProgram(owner: Owner | null, path: string): Promise<boolean> {
  if (owner === null) return false;
  return owner.program === (await realpath(path).catch(() => path));
}
