import { EXIT } from "../../../core/errors.ts";
import { formatNote } from "../../ui/messages.ts";
import { stdoutScreen } from "../../ui/terminal.ts";
import { printable } from "../../ui/text.ts";
import { ago } from "../../ui/units.ts";
import { createScene, type Scene, type SceneDeps } from "../scene.ts";
import { reachedManager } from "../without-manager.ts";
import { serviceNotes } from "./notes.ts";
import type { ServiceNote } from "./service-note.ts";
import { type ServiceView, viewOf } from "./view.ts";

export async function status(
  options: { json?: boolean; config?: string },
  deps: SceneDeps = {},
): Promise<void> {
  const scene = await createScene({ ...deps, config: options.config ?? deps.config });
  if (options.json && (await saysWithout(scene))) return;
  const manager = await reachedManager(scene);
  if (manager === null) return;
  const view = await viewOf(scene, manager);
  const notes = serviceNotes(view);
  const { width } = stdoutScreen();
  process.stdout.write(
    options.json
      ? `${JSON.stringify(asJson(view, notes), null, 2)}\n`
      : `${inWords(view, notes, width, Date.now()).join("\n")}\n`,
  );
  process.exitCode = isServing(view) ? EXIT.ok : EXIT.failed;
}

/** For a program, that no manager answers is an answer as well. */
async function saysWithout({ manager }: Scene): Promise<boolean> {
  const answer = await manager?.available();
  if (manager !== null && answer?.ok) return false;
  const file = await manager?.found();
  const why = answer?.ok === false ? answer.why : "this system has neither systemd nor launchd";
  const said = {
    ...{ manager: manager?.kind ?? null, file: manager?.file ?? null, available: false, why },
    ...{ installed: file?.kind === "ours", foreign: file?.kind === "foreign", serving: false, notes: [] },
  };
  process.stdout.write(`${JSON.stringify(said, null, 2)}\n`);
  process.exitCode = EXIT.failed;
  return true;
}

function isServing({ state, own, answers }: ServiceView): boolean {
  return state.file.kind === "ours" && state.active === "running" && own && answers;
}

function inWords(view: ServiceView, notes: readonly ServiceNote[], width: number, now: number): string[] {
  const { state, path, asked, own } = view;
  if (state.file.kind === "none") {
    const lines = [`not installed: there is no ${printable(path)}`, "→ keybearer service install"];
    if (!asked.ok) return lines;
    const { pid } = asked.value;
    if (own) return [...lines, `what was started from it still runs, as pid ${pid}`];
    return [...lines, `keybearer runs by hand, as pid ${pid}: stop that one first`];
  }
  const lines = [`${state.file.kind === "ours" ? "installed" : "not keybearer's"}: ${printable(path)}`];
  if (state.file.kind === "ours") {
    const { node, main, config, home } = state.file.unit;
    lines.push(`  starts ${printable(`${node} ${main}`)}`, `  with ${printable(config)}`);
    if (home !== null) lines.push(`  and its files in ${printable(home)}`);
    if (hasNamespaces(view) === false) lines.push(`  ${NO_NAMESPACES}`);
  }
  const pid = state.pid === null ? "" : `, pid ${state.pid}`;
  const since = state.since === null ? "" : `, for ${ago(now - state.since)}`;
  lines.push(`${printable(state.words)}${pid}${since}${startsInWords(view)}`);
  if (asked.ok && own) {
    const on = asked.value.listen.join(" and ");
    lines.push(`keybearer ${printable(asked.value.version)}, on ${on}${view.answers ? ", answers" : ""}`);
  }
  if (state.enabled) lines.push("starts at your login");
  return [...lines, ...notes.flatMap((each) => ["", ...formatNote(each, width).split("\n")])];
}

const NO_NAMESPACES =
  "without a read-only view of the file system: process: is used, or the system did not grant it at the installation";

/** null: not a matter of this manager. */
function hasNamespaces({ kind, state: { file, inNamespace } }: ServiceView): boolean | null {
  if (kind !== "systemd" || file.kind !== "ours") return null;
  return inNamespace ?? file.unit.namespaces;
}

function startsInWords({ kind, state: { restarts } }: ServiceView): string {
  if (restarts === null || restarts === 0) return "";
  if (kind === "launchd") return `, started ${restarts} time${restarts === 1 ? "" : "s"}`;
  return `, started again ${restarts} time${restarts === 1 ? "" : "s"} after a failure`;
}

function asJson(view: ServiceView, notes: readonly ServiceNote[]): unknown {
  const { state, asked, own } = view;
  const unit = state.file.kind === "ours" ? state.file.unit : null;
  return {
    manager: view.kind,
    file: view.path,
    available: true,
    installed: state.file.kind === "ours",
    foreign: state.file.kind === "foreign",
    serving: isServing(view),
    active: state.active,
    words: state.words,
    pid: state.pid,
    since: state.since,
    restarts: state.restarts,
    enabled: state.enabled,
    last_exit: state.lastExit,
    answers: own && view.answers,
    version: asked.ok && own ? asked.value.version : null,
    version_here: view.here.version,
    node: unit?.node ?? null,
    node_there: view.start?.nodeThere ?? null,
    main: unit?.main ?? null,
    main_there: view.start?.mainThere ?? null,
    config: unit?.config ?? null,
    home: unit?.home ?? null,
    namespaces: hasNamespaces(view),
    format: unit?.format ?? null,
    notes,
  };
}
