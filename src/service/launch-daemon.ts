import { dirname } from "node:path";
import { systemPaths } from "../core/paths.ts";
import { logFileIn } from "./log-file.ts";
import { renderDaemonPlist } from "./plist.ts";
import type { Step } from "./service.ts";
import type { Program } from "./system-program.ts";

/*
 * The system service of macOS as a text: the property list of a LaunchDaemon, and the commands around it. Nobody has run them on a
 * Mac, so no command of keybearer runs them either.
 */

const LABEL = "com.keybearer.system";
export const DAEMON_FILE = `/Library/LaunchDaemons/${LABEL}.plist`;
export const DAEMON_USER = "_keybearer";
/** Of the user and of its group. macOS gives people numbers from 501 on. */
export const DAEMON_ID = 399;

interface DaemonOptions extends Program {
  /** launchd kills a daemon that has not ended this long after a stop. */
  readonly stopSeconds: number;
}

/** @param template of the agent */
export function launchDaemonText(template: string, { node, main, stopSeconds }: DaemonOptions): string {
  const paths = systemPaths(0);
  return renderDaemonPlist(template, {
    label: LABEL,
    user: DAEMON_USER,
    comment:
      "keybearer as a LaunchDaemon with a user of its own. Never run on a Mac: see docs/system-service.md.",
    argv: [node, main, "run", "--system"],
    // Without /usr/local/bin, which Homebrew gives to whoever installed it.
    environment: { PATH: "/usr/bin:/bin:/usr/sbin:/sbin", HOME: paths.home },
    logFile: logFileIn(paths),
    stopSeconds,
  });
}

/** Everything that root would do, in order. */
export function planLaunchDaemon(template: string, options: DaemonOptions): Step[] {
  const { config, home, state } = systemPaths(0);
  return [
    // Both must find nothing.
    root("dscl", ".", "-search", "/Users", "UniqueID", `${DAEMON_ID}`),
    root("dscl", ".", "-search", "/Groups", "PrimaryGroupID", `${DAEMON_ID}`),
    ...record(`/Groups/${DAEMON_USER}`, { PrimaryGroupID: `${DAEMON_ID}`, Password: "*" }),
    ...record(`/Users/${DAEMON_USER}`, {
      UniqueID: `${DAEMON_ID}`,
      PrimaryGroupID: `${DAEMON_ID}`,
      RealName: "keybearer",
      NFSHomeDirectory: home,
      UserShell: "/usr/bin/false",
      Password: "*",
      IsHidden: "1",
    }),
    folder(dirname(config), { owner: "root", group: DAEMON_USER, mode: "750" }),
    folder(dirname(home), { owner: "root", group: "wheel", mode: "755" }),
    folder(home, { owner: DAEMON_USER, group: DAEMON_USER, mode: "700" }),
    folder(state, { owner: DAEMON_USER, group: DAEMON_USER, mode: "700" }),
    { kind: "write", file: DAEMON_FILE, text: launchDaemonText(template, options) },
    root("chown", "root:wheel", DAEMON_FILE),
    root("chmod", "644", DAEMON_FILE),
    root("plutil", "-lint", DAEMON_FILE),
    root("launchctl", "enable", `system/${LABEL}`),
    root("launchctl", "bootstrap", "system", DAEMON_FILE),
  ];
}

/** A record of the Mac's own directory of users and groups. */
function record(path: string, fields: Readonly<Record<string, string>>): Step[] {
  const set = Object.entries(fields).map(([key, value]) => root("dscl", ".", "-create", path, key, value));
  return [root("dscl", ".", "-create", path), ...set];
}

interface FolderMode {
  readonly owner: string;
  readonly group: string;
  readonly mode: string;
}

function folder(path: string, { owner, group, mode }: FolderMode): Step {
  return root("install", "-d", "-o", owner, "-g", group, "-m", mode, path);
}

function root(...argv: readonly string[]): Step {
  return { kind: "run", argv: ["sudo", ...argv] };
}
