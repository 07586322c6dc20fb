import { realpath } from "node:fs/promises";
import type { Snapshot } from "../config/snapshot.ts";
import { refuse } from "../core/refusal.ts";
import type { Credential } from "./credential.ts";
import { type Identified, identify } from "./identify.ts";
import type { Owner } from "./process.ts";

/** By token, and by program if some tool asks for that. */
export async function whoCalls(
  snapshot: Snapshot,
  credentials: readonly Credential[],
  findOwner: () => Promise<Owner | null>,
): Promise<Identified> {
  const named = identify(snapshot, credentials);
  return snapshot.processTools.length === 0 ? named : await confirmProcess(named, snapshot, findOwner);
}

/**
 * Brings the program that owns the connection into the answer of identify(). A tool with `process` and no token is known
 * by its program alone; with both, both must hold. Weaker than a token: whoever may run the program may be the tool.
 */
async function confirmProcess(
  named: Identified,
  snapshot: Snapshot,
  findOwner: () => Promise<Owner | null>,
): Promise<Identified> {
  if (named.ok) {
    const { process, name } = named.tool;
    if (process === null) return named;
    const owner = await findOwner();
    if (await isProgram(owner, process)) return { ...named, program: process };
    const message =
      `the token of tool ${name} came from ${owner?.program ?? "a program that cannot be told"}, ` +
      `and tools.${name}.process lets in ${process} only`;
    return { ok: false, refusal: refuse("token-unknown", message), anonymous: false };
  }
  const tools = snapshot.processTools.filter((tool) => tool.tokens.length === 0);
  if (!named.anonymous || tools.length === 0) return named;
  const owner = await findOwner();
  for (const tool of tools) {
    if (tool.process !== null && (await isProgram(owner, tool.process)))
      return { ok: true, tool, program: tool.process };
  }
  return named;
}

async function isProgram(owner: Owner | null, path: string): Promise<boolean> {
  if (owner === null) return false;
  return owner.program === (await realpath(path).catch(() => path));
}
