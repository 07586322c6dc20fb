import { advice } from "../../core/advice.ts";
import { findSessions, type SessionName } from "../../usage/reports/sessions.ts";
import type { IndexDatabase } from "../usage/index-file.ts";

const MAX_CANDIDATES = 10;

type FoundSession =
  | { readonly ok: true; readonly name: SessionName }
  | { readonly ok: false; readonly problem: string };

/**
 * The one session whose id is this, or begins with it.
 * @param tool null: of any tool
 */
export function findSession(db: IndexDatabase, text: string, tool: string | null): FoundSession {
  const id = text.trim();
  const found = id === "" ? [] : findSessions(db, id, tool === null ? [] : [tool], MAX_CANDIDATES + 1);
  const [name, ...others] = found;
  if (name === undefined) {
    const ofTool = tool === null ? "" : ` of ${tool}`;
    return { ok: false, problem: `there is no session ${id}${ofTool} → ${advice.sessions()}` };
  }
  if (others.length === 0) return { ok: true, name };
  const lines = found.slice(0, MAX_CANDIDATES).map(({ tool, session }) => `${session}  ${tool}`);
  const more = found.length > MAX_CANDIDATES ? "\n…" : "";
  const isSame = found.every(({ session }) => session === name.session);
  const next = isSame ? "name one with --tool" : "write more of the id";
  return { ok: false, problem: `${id} fits several sessions; ${next}:\n${lines.join("\n")}${more}` };
}
