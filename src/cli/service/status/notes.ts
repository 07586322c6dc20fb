import { quoteForShell } from "../../../core/display.ts";
import { inTheWay } from "../../../service/answer-words.ts";
import { FORMAT } from "../../../service/spec.ts";
import { checkCommand, exitInWords } from "./exit-words.ts";
import type { ServiceNote } from "./service-note.ts";
import type { ServiceView } from "./view.ts";

const INSTALL = "keybearer service install";
const RESTART = "keybearer service restart";
const LOGS = "keybearer service logs";
const AGAIN = "keybearer service status, in a moment";

/** What should be mended, each with the one command that does it. */
export function serviceNotes(view: ServiceView): ServiceNote[] {
  const { file } = view.state;
  if (file.kind === "none") return [];
  if (file.kind === "foreign") {
    const { why, next } = inTheWay(view.path, file.why);
    return [note("foreign", true, why, next.replace("try again", INSTALL))];
  }
  return [...startNotes(view), ...(view.blind === null ? [] : [view.blind]), ...runNotes(view)];
}

/** What the next start will find. */
function startNotes({ state, start, here, config }: ServiceView): ServiceNote[] {
  if (state.file.kind !== "ours" || start === null) return [];
  const { unit } = state.file;
  const notes: ServiceNote[] = [];
  if (!start.nodeThere) notes.push(note("node", true, `node is no longer at ${unit.node}`, INSTALL));
  else if (!start.sameNode)
    notes.push(note("node", false, `it starts ${unit.node}, and this command runs on ${here.node}`, INSTALL));
  if (!start.mainThere) notes.push(note("package", true, `keybearer is no longer at ${unit.main}`, INSTALL));
  else if (!start.sameMain)
    notes.push(note("package", false, `it starts another copy, ${unit.main}; this is ${here.main}`, INSTALL));
  if (!start.sameConfig) {
    const next = `${INSTALL} --config ${quoteForShell(config)}`;
    notes.push(note("config", false, `it goes by ${unit.config}, and not by ${config}`, next));
  }
  if (!start.sameHome) {
    const what = `it has its files in ${unit.home ?? "the usual folders"}, and this shell's KEYBEARER_HOME is another`;
    notes.push(note("home", false, what, INSTALL));
  }
  if (unit.format < FORMAT)
    notes.push(note("older", false, "its file was written by an older keybearer", INSTALL));
  if (!state.enabled) notes.push(note("disabled", false, "it does not start at your login", INSTALL));
  return notes;
}

function runNotes({ state, asked, own, answers, here, kind, ...view }: ServiceView): ServiceNote[] {
  if (asked.ok && !own) {
    const { pid } = asked.value;
    const next = `stop that one (kill ${pid}), then ${RESTART}`;
    return [note("by-hand", true, `keybearer runs by hand as pid ${pid}, not as the service`, next)];
  }
  if (state.active === "failed") {
    const config = state.file.kind === "ours" ? state.file.unit.config : view.config;
    const about = { check: checkCommand(config, view.usual), said: state.said };
    const why = state.lastExit === null ? null : exitInWords(state.lastExit, about);
    const what = why === null ? "it has failed" : `it has failed: ${why.what}`;
    return [note("failed", true, what, why?.next ?? LOGS)];
  }
  if (state.active === "stopped") return [note("stopped", true, "it does not run", RESTART)];
  // launchd counts every start, systemd those after a failure: one that is caught between two of them looks like any start.
  if (state.active === "starting" && kind === "systemd" && (state.restarts ?? 0) > 0)
    return [note("failing", true, `it does not come up: it ended ${times(state.restarts)} already`, LOGS)];
  if (state.active !== "running") return [note(state.active, false, `it is ${state.active}`, AGAIN)];
  if (!asked.ok || !answers) return [note("silent", true, "it runs, but does not answer", LOGS)];
  if (asked.value.version === here.version) return [];
  const what = `the running one is keybearer ${asked.value.version}, this one is ${here.version}`;
  return [note("version", false, what, RESTART)];
}

function times(count: number | null): string {
  return count === 1 ? "once" : `${count} times`;
}

function note(id: string, grave: boolean, what: string, next: string | null): ServiceNote {
  return { id, grave, what, next };
}
