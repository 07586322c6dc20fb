import { advice } from "../core/advice.ts";
import type { Finding } from "./findings.ts";

/** What decides whether programs that run as an owner can reach the keys of the system service. */
export interface Boundary {
  /** Commands run as root without a password. */
  readonly canSudo: boolean;
  /** The owner's groups. */
  readonly groups: readonly string[];
  /** Why the program, its configuration or its units could be changed by another user than root; null: they cannot. */
  readonly changeable: string | null;
  /** Why a program that gets core dumps could be changed by another user than root; null: it cannot, or there is none. */
  readonly corePattern: string | null;
  /** null: it does not say. */
  readonly systemd: number | null;
}

/** Their members can become root, or read a disk. */
const ROOTLIKE = ["docker", "lxd", "incus-admin", "libvirt", "disk", "root", "shadow"];
const OLDEST_SYSTEMD = 247;

/** Judged from the owner's side: what a coding agent could do that runs as this user. */
export function boundaryFindings({ canSudo, groups, changeable, corePattern, systemd }: Boundary): Finding[] {
  const about = "the system service";
  const problems: { what: string; next: string | null }[] = [];
  if (canSudo)
    problems.push({
      what: "sudo asks for no password here, so every program that you start can become root and read the keys",
      next: "remove NOPASSWD from sudoers, and log in again",
    });
  for (const group of groups.filter((name) => ROOTLIKE.includes(name)))
    problems.push({
      what: `you are in the group ${group}, whose members can read every file, the keys too`,
      next: `sudo gpasswd -d $USER ${group}, and log in again`,
    });
  if (changeable !== null)
    problems.push({
      what: `${changeable}, so the program or its configuration could be replaced`,
      next: advice.systemService("install"),
    });
  if (corePattern !== null)
    problems.push({ what: `core dumps go to a program that could be replaced: ${corePattern}`, next: null });
  if (systemd !== null && systemd < OLDEST_SYSTEMD)
    problems.push({
      what: `systemd is ${systemd}, and some restrictions need ${OLDEST_SYSTEMD}`,
      next: null,
    });
  if (problems.length > 0)
    return problems.map((problem) => ({ id: "boundary", level: "problem", about, ...problem }));
  const what =
    "programs that run as you cannot read the keys: another user has them, and you cannot become root unasked";
  return [{ id: "boundary", level: "ok", about, what, next: null }];
}
