import { shellWord } from "../../keys/words.ts";
import { FORMAT } from "../../service/spec.ts";
import type { Note } from "../note.ts";
import { exitInWords } from "./exit-words.ts";
import type { ServiceView } from "./view.ts";

export interface ServiceNote extends Note {
  /** A stable name for programs. */
  readonly id: string;
  /** It keeps the service from serving, now or at its next start. */
  readonly grave: boolean;
}

const INSTALL = "keybearer service install";
const RESTART = "keybearer service restart";

/** What should be mended, each with the one command that does it. */
export function serviceNotes(view: ServiceView): ServiceNote[] {
  const { file } = view.state;
  if (file.kind === "none") return [];
  if (file.kind === "foreign")
    return [note("foreign", true, `${view.path} is left alone: ${file.why}`, "keybearer service install")];
  return [...startNotes(view), ...runNotes(view)];
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
  if (!start.sameConfig)
    notes.push(note("config", false, `it goes by ${unit.config}, and not by ${config}`, INSTALL));
  if (!start.sameHome) {
    const what = `it has its files in ${unit.home ?? "the usual folders"}, and this shell looks elsewhere (KEYBEARER_HOME)`;
    notes.push(note("home", false, what, INSTALL));
  }
  if (unit.format < FORMAT)
    notes.push(note("older", false, "its file was written by an older keybearer", INSTALL));
  if (!state.enabled) notes.push(note("disabled", false, "it does not start at your login", INSTALL));
  return notes;
}

function runNotes({ state, asked, own, answers, here, ...view }: ServiceView): ServiceNote[] {
  const config = state.file.kind === "ours" ? state.file.unit.config : view.config;
  if (asked.ok && !own)
    return [
      note(
        "by-hand",
        true,
        `keybearer runs by hand as pid ${asked.value.pid}, not as the service`,
        `stop that one (kill ${asked.value.pid}), then ${RESTART}`,
      ),
    ];
  if (state.active === "failed") {
    const check = config === view.config ? "keybearer check" : `keybearer check ${shellWord(config)}`;
    const why = state.lastExit === null ? null : exitInWords(state.lastExit, check);
    const what = why === null ? "it has failed" : `it has failed: ${why.what}`;
    return [note("failed", true, what, why?.next ?? "keybearer service logs")];
  }
  if (state.active === "stopped") return [note("stopped", true, "it does not run", RESTART)];
  if (state.active !== "running") return [];
  if (!asked.ok || !answers)
    return [note("silent", true, "it runs, but does not answer", "keybearer service logs")];
  if (asked.value.version === here.version) return [];
  const what = `the running one is keybearer ${asked.value.version}, this one is ${here.version}`;
  return [note("version", false, what, RESTART)];
}

function note(id: string, grave: boolean, what: string, next: string | null): ServiceNote {
  return { id, grave, what, next };
}
