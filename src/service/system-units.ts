import { join } from "node:path";
import { SYSTEM_PLACES, socketUnitPath } from "../core/paths.ts";
import { quote } from "./unit.ts";

/* The files with which systemd runs keybearer as a system service. Pure: the same installation gives the same texts. */

export const SERVICE_USER = "keybearer";
export const SYSTEM_UNIT = "keybearer.service";

export interface SystemSpec {
  /** The node binary and the program, which only root can change. */
  readonly node: string;
  readonly main: string;
  readonly owners: readonly { readonly name: string; readonly uid: number }[];
  /** systemd kills a daemon that has not ended this long after a stop. */
  readonly stopSeconds: number;
}

/** A file of an installation. */
export interface UnitFile {
  readonly path: string;
  readonly text: string;
}

const UNITS = "/etc/systemd/system";
/** Of every user's own systemd. Only for owners there is a control socket, so for others it does not start. */
export const ALERTS_UNIT = "keybearer-alerts.service";
export const ALERTS_FILE = `/etc/systemd/user/${ALERTS_UNIT}`;
export const SYSUSERS = "/etc/sysusers.d/keybearer.conf";

/** The first line of every file that keybearer writes for systemd. */
const MARK = "# keybearer system unit ";

export function isOurs(text: string): boolean {
  return text.startsWith(MARK);
}

/** Every file, in the order in which they are written: the sockets before the service that needs them. */
export function systemFiles(template: string, spec: SystemSpec): UnitFile[] {
  const sockets = [
    socketUnit("root", "root", 0),
    ...spec.owners.map(({ name, uid }) => socketUnit(name, `owner-${name}`, uid)),
  ];
  return [
    sysusers(),
    ...sockets,
    alertsUnit(spec),
    { path: join(UNITS, SYSTEM_UNIT), text: serviceUnit(template, spec) },
  ];
}

export function socketNames(owners: readonly { readonly name: string }[]): string[] {
  return ["root", ...owners.map(({ name }) => name)].map((name) => `keybearer-${name}.socket`);
}

function sysusers(): UnitFile {
  const text = `${MARK}1\nu ${SERVICE_USER} - "keybearer" ${SYSTEM_PLACES.data}\n`;
  return { path: SYSUSERS, text };
}

function serviceUnit(template: string, { node, main, owners, stopSeconds }: SystemSpec): string {
  const filled: Readonly<Record<string, string>> = {
    "ExecStart=": `ExecStart=:${quote(node)} ${quote(main)} run --system`,
    "Sockets=": `Sockets=${socketNames(owners).join(" ")}`,
    "TimeoutStopSec=": `TimeoutStopSec=${stopSeconds}s`,
  };
  return template
    .split("\n")
    .map((line) => filled[/^[A-Za-z]+=/.exec(line)?.[0] ?? ""] ?? line)
    .join("\n");
}

/** The system service has no desktop, so each owner's session shows its alerts, as the owner. */
function alertsUnit({ node, main }: SystemSpec): UnitFile {
  const text = `${MARK}1
[Unit]
Description=desktop alerts of keybearer
ConditionPathExists=${SYSTEM_PLACES.sockets}/%U.sock

[Service]
ExecStart=:${quote(node)} ${quote(main)} events --follow --desktop --system
Restart=on-failure
RestartSec=30s

[Install]
WantedBy=default.target
`;
  return { path: ALERTS_FILE, text };
}

/** The kernel lets only this user, and root, open the socket. The folder is root's, so nobody can put another in its place. */
function socketUnit(user: string, descriptor: string, uid: number): UnitFile {
  const text = `${MARK}1
[Unit]
Description=control socket of keybearer for ${user}

[Socket]
ListenStream=${SYSTEM_PLACES.sockets}/${uid}.sock
SocketUser=${user}
SocketMode=0600
DirectoryMode=0755
FileDescriptorName=${descriptor}
Service=${SYSTEM_UNIT}
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
`;
  return { path: socketUnitPath(user), text };
}
