import { join } from "node:path";
import { WRITABLE } from "../../../clients/settings-files.ts";
import type { Config } from "../../../config/schema.ts";
import type { Paths } from "../../../core/paths.ts";

/** A folder that keybearer writes to, and which of the names in it are those that it writes. */
export interface PurgeFolder {
  readonly path: string;
  readonly writes: (name: string) => boolean;
  /** Names that are links by nature, and lead nowhere. */
  readonly links?: (name: string) => boolean;
}

const HEX = "[0-9a-f]{24}";
const LOCK = new RegExp(`^\\.config\\.yaml\\.lock(?:\\.${HEX}\\.tmp)?$`);
const CONFIG = new RegExp(`^(?:config\\.yaml|\\.config\\.yaml\\.${HEX}\\.tmp)$`);
const FACTS = new RegExp(
  `^(?:(?:trust|log-end|consoles)\\.json(?:\\.tmp|\\.broken-[\\dTZ-]+)?|\\.(?:trust|log-end|consoles)\\.json\\.${HEX}\\.tmp)$`,
);
const DAYS = /^\d{4}-\d\d-\d\d\.jsonl(?:\.gz)?(?:\.tmp)?$/;
const DATABASES = /^(?:index|mirror)\.db(?:\.damaged-[\dTZ]+)?(?:-wal|-shm|-journal)?$/;
/** Of versions before the journal. */
const OLD_LOG = /^usage\.db(?:\.corrupt-\d{8}T\d{6}Z(?:-\d+)?|\.left-\d+)?(?:-wal|-shm|-journal|-slips)?$/;
const SOCKET = /^control\.sock$/;
const OTHERS = /^(?:lock\.db(?:-journal)?|keybearer\.log)$/;
const UNDO = new RegExp(
  `^\\.?(?:${WRITABLE.join("|")})-\\d{4}-[\\d-]+T[\\d-]+Z\\.(?:json|old)(?:(?:\\.${HEX})?\\.tmp)?$`,
);

/**
 * The inner ones first. Every name is one that some part of keybearer writes: a folder called keys, undo or run may be
 * a person's own, or hold something of theirs.
 */
export function purgeFolders(paths: Paths, config: Config | null): PurgeFolder[] {
  const { state, run } = paths;
  const folder = paths.own[0] ?? state;
  const inState = (name: string) =>
    FACTS.test(name) || DATABASES.test(name) || OLD_LOG.test(name) || OTHERS.test(name);
  const keys = join(folder, "keys");
  const sockets = [...new Set([run, join(state, "run")])];
  return [
    ...sockets.map((path) => ({ path, writes: (name: string) => SOCKET.test(name) })),
    { path: paths.usage, writes: (name) => DAYS.test(name) },
    { path: join(state, "undo"), writes: (name) => UNDO.test(name) },
    { path: keys, writes: keyNames(keys, config) },
    { path: state, writes: inState },
    { path: folder, writes: (name) => CONFIG.test(name), links: (name) => LOCK.test(name) },
  ];
}

/** As `tools add` and `tools rotate` name them: by the tool, or whatever config.yaml names in there. */
function keyNames(folder: string, config: Config | null): (name: string) => boolean {
  const tools = Object.values(config?.tools ?? {});
  return (written) => {
    const temporary = /^\.(.+)\.[0-9a-f]{24}\.tmp$/.exec(written)?.[1];
    const name = temporary ?? written.replace(/\.[0-9a-f]{12}\.tmp$/, "");
    const path = join(folder, name);
    return tools.some(
      ({ name: tool, key }) =>
        (key.kind === "file" && key.path === path) ||
        name === tool ||
        (name.startsWith(`${tool}-`) && /^-\d+$/.test(name.slice(tool.length))),
    );
  };
}
