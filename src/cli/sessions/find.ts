import { askDaemon } from "../../control/client.ts";
import type { SessionStatus } from "../../control/session-status.ts";
import { advice } from "../../core/advice.ts";
import { type Failed, failed } from "../../core/display.ts";
import type { Paths } from "../../core/paths.ts";
import { PROCESS_SESSION } from "../../core/session-id.ts";
import { countedWith, findSessions, type SessionName } from "../../usage/reports/sessions.ts";
import { hasUsageLog, type IndexDatabase, withIndex } from "../usage/index-file.ts";

const MAX_CANDIDATES = 10;

type FoundSession = { readonly ok: true; readonly name: SessionName } | Failed;

/** What the daemon knows of sessions; empty: none runs. */
export async function askSessions(paths: Paths): Promise<readonly SessionStatus[]> {
  const asked = await askDaemon<SessionStatus[]>(paths, "GET", "/sessions");
  return asked.ok ? asked.value : [];
}

/**
 * The one session whose id is this, or begins with it. The usage log knows sessions by their records, and the daemon those
 * that limits count.
 * @param tool null: of any tool
 */
export async function findSession(paths: Paths, text: string, tool: string | null): Promise<FoundSession> {
  const id = text.trim();
  const known = await askSessions(paths);
  // A session that runs can be stopped even if the index cannot be read.
  const isKnown = known.some((one) => one.session === id && (tool === null || one.tool === tool));
  if (isKnown || !hasUsageLog(paths)) return chooseSession(id, tool, [], known);
  const answers: FoundSession[] = [];
  await withIndex(paths, (db) => {
    answers.push(findIn(db, id, tool, known));
  });
  return answers[0] ?? chooseSession(id, tool, [], known);
}

/** The session that limits count, for a process that sends no id. */
export async function findCounted(paths: Paths, text: string, tool: string | null): Promise<FoundSession> {
  const shared = text.trim();
  if (tool !== null && SHARED.test(shared)) return { ok: true, name: { tool, session: shared } };
  const found = await findSession(paths, text, tool);
  if (!found.ok || !found.name.session.startsWith(PROCESS_SESSION)) return found;
  let session = found.name.session;
  await withIndex(paths, (db) => {
    session = countedWith(db, found.name) ?? session;
  });
  return { ok: true, name: { tool: found.name.tool, session } };
}

/** The id of a session that requests without one share; the index may not have such a request. */
const SHARED = /^\d{4}-\d\d-\d\d\/[\w.+-]+$/;

/** @param known see askSessions() */
export function findIn(
  db: IndexDatabase,
  text: string,
  tool: string | null,
  known: readonly SessionName[],
): FoundSession {
  const id = text.trim();
  const recorded = id === "" ? [] : findSessions(db, id, tool === null ? [] : [tool], MAX_CANDIDATES + 1);
  return chooseSession(id, tool, recorded, known);
}

function chooseSession(
  id: string,
  tool: string | null,
  recorded: readonly SessionName[],
  known: readonly SessionName[],
): FoundSession {
  const isWanted = (name: SessionName) =>
    id !== "" && name.session.startsWith(id) && (tool === null || name.tool === tool);
  const all = new Map<string, SessionName>();
  for (const { tool, session } of [...recorded, ...known.filter(isWanted)])
    all.set(JSON.stringify([tool, session]), { tool, session });
  const names = [...all.values()];
  const exact = names.filter(({ session }) => session === id);
  const found = exact.length > 0 ? exact : names;
  const [name, ...others] = found;
  if (name === undefined) {
    const ofTool = tool === null ? "" : ` of ${tool}`;
    return failed(`there is no session ${id}${ofTool}`, advice.sessions());
  }
  if (others.length === 0) return { ok: true, name };
  const lines = found.slice(0, MAX_CANDIDATES).map(({ tool, session }) => `${session}  ${tool}`);
  const more = found.length > MAX_CANDIDATES ? "\n…" : "";
  const isSame = found.every(({ session }) => session === name.session);
  const next = isSame ? "name one with --tool" : "write more of the id";
  return failed(`${id} fits several sessions; ${next}:\n${lines.join("\n")}${more}`);
}
