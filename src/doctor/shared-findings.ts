import { advice } from "../core/advice.ts";
import { MINUTE_MS } from "../core/units.ts";
import { durationInWords } from "../limits/format.ts";
import { MAKE_SECRET, type SharedStatus, sharedProblems } from "../shared/status.ts";
import type { Finding, FindingLevel } from "./findings.ts";

const ABOUT = "the shared store";
const NAMES = { redis: "Redis", valkey: "Valkey" } as const;
/** The scripts need what these versions brought. */
const OLDEST = { redis: "7.0", valkey: "7.2" } as const;

/** Smaller differences are usual on a network. */
const CLOCK_NOTE_MS = 2000;
const CLOCK_WARNING_MS = MINUTE_MS;

/** Whether several machines can rely on the store that they share. */
export function sharedFindings(shared: SharedStatus | null, now: number): Finding[] {
  if (shared === null) return [];
  return [
    connectionFinding(shared),
    ...versionFindings(shared),
    ...persistenceFindings(shared),
    ...clockFindings(shared),
    ...sharedProblems(shared, now).map(({ level, problem, next }) => finding(level, problem, next)),
    ...signatureFindings(shared),
  ];
}

function finding(level: FindingLevel, what: string, next: string | null): Finding {
  return { id: "shared", level, about: ABOUT, what, next };
}

function connectionFinding({
  state,
  address,
  problem,
  next,
  server,
  version,
  machines,
}: SharedStatus): Finding {
  const detail = problem === null ? "" : `: ${problem}`;
  switch (state) {
    case "connected": {
      const program = server === null ? "" : `, ${NAMES[server]} ${version}`;
      const names = machines.map(({ name }) => name).join(", ");
      return finding("ok", `${address}${program}, used by ${names}`, null);
    }
    case "connecting":
      return finding("warning", `${address} is not connected yet${detail}`, next ?? advice.status());
    case "unreachable": {
      const reach =
        "check that the server runs and that this machine can reach it; keybearer tries again by itself";
      return finding("problem", `${address} cannot be reached${detail}`, next ?? reach);
    }
    case "refused":
      return finding("problem", `${address} cannot be used${detail}`, next ?? "check shared in config.yaml");
  }
}

function versionFindings({ server, version }: SharedStatus): Finding[] {
  if (server === null || version === null || isAtLeast(version, OLDEST[server])) return [];
  const what = `${NAMES[server]} ${version} is too old`;
  return [finding("problem", what, `update it to ${NAMES[server]} ${OLDEST[server]} or newer`)];
}

function isAtLeast(version: string, oldest: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [oldestMajor = 0, oldestMinor = 0] = oldest.split(".").map(Number);
  return major > oldestMajor || (major === oldestMajor && minor >= oldestMinor);
}

function persistenceFindings({ append_only: appendOnly, eviction_policy: policy }: SharedStatus): Finding[] {
  const findings: Finding[] = [];
  if (appendOnly === false) {
    const what =
      "it does not write its data to disk at once (appendonly), so a restart of it stops running limits";
    const next =
      "in redis-cli: CONFIG SET appendonly yes; and appendonly yes in the server's configuration file";
    findings.push(finding("warning", what, next));
  }
  if (policy !== null && policy !== "noeviction") {
    const what = `it may delete what was counted when its memory is full (maxmemory-policy ${policy})`;
    const next =
      "in redis-cli: CONFIG SET maxmemory-policy noeviction; and the same in the server's configuration file";
    findings.push(finding("problem", what, next));
  }
  return findings;
}

/** Limits follow the store's clock. Days, expiries and reports follow this machine's. */
function clockFindings({ clock_offset_ms: offset }: SharedStatus): Finding[] {
  const difference = Math.abs(offset);
  if (difference <= CLOCK_NOTE_MS) return [];
  const side = offset > 0 ? "behind" : "ahead of";
  const what = `this machine's clock is ${durationInWords(difference)} ${side} the store's; limits follow the store's`;
  if (difference <= CLOCK_WARNING_MS) return [finding("ok", what, null)];
  const next = "set the clocks of both by the network: timedatectl set-ntp true; on macOS in Date & Time";
  return [finding("warning", what, next)];
}

function signatureFindings({ signs, machines }: SharedStatus): Finding[] {
  const others = machines.filter(({ self }) => !self);
  if (others.length === 0) return [];
  // undefined: from a daemon before an update.
  if (signs === false) {
    const what =
      "the machines do not sign their records, so a row of a console that only another machine explains stays a suspicion";
    const next = `set shared.secret to the same on all machines. make it once with: ${MAKE_SECRET}`;
    return [finding("warning", what, next)];
  }
  const named = (signature: "missing" | "wrong") =>
    others.filter((one) => one.signature === signature).map(({ name }) => name);
  const findings: Finding[] = [];
  const missing = named("missing").join(", ");
  const wrong = named("wrong").join(", ");
  if (missing !== "")
    findings.push(
      finding(
        "warning",
        `these machines do not sign their records: ${missing}. a row that only they explain stays a suspicion`,
        "set shared.secret there to the same as here. if you do not know such a machine, someone else writes to the store",
      ),
    );
  if (wrong !== "")
    findings.push(
      finding(
        "problem",
        `these machines sign their records with another secret: ${wrong}`,
        "set shared.secret to the same on all machines",
      ),
    );
  return findings;
}
