import type { Period } from "../config/schema.ts";
import type { KeyState } from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import type { Problem } from "../core/display.ts";
import type { LimitKind } from "../limits/counters.ts";
import { countInWords, durationInWords, limitName } from "../limits/format.ts";
import { MIN_SECRET } from "./signature.ts";
import type { Signature, StoreState } from "./store.ts";

/** The shared store and the machines that use it, as `keybearer status --json` prints them. Times in milliseconds UTC. */
export interface SharedStatus {
  /** refused: the store can be reached, but this machine may not use it, or has no usable password or time zone. */
  readonly state: StoreState;
  /** Why it is not connected; null: it is, or the first attempt is not over. */
  readonly problem: string | null;
  /** What to type next; null: nothing, or keybearer tries again by itself. */
  readonly next: string | null;
  readonly address: string;
  /** null, as the next three: the store has not answered yet. */
  readonly server: "redis" | "valkey" | null;
  readonly version: string | null;
  /** Whether the store writes its data to disk at once. */
  readonly append_only: boolean | null;
  /** Its maxmemory-policy. */
  readonly eviction_policy: string | null;
  /** How far the store's clock is ahead of this machine's; negative: behind. */
  readonly clock_offset_ms: number;
  /** This machine signs its records, because config.yaml has shared.secret. */
  readonly signs: boolean;
  /** false: after a restart or a loss of data, the store grants nothing in running windows yet. */
  readonly settled: boolean;
  /** The machines that must report before it does. */
  readonly recovering: readonly string[];
  /** The tools of this machine that share their limits. */
  readonly tools: readonly string[];
  readonly machines: readonly SharedMachine[];
}

export interface SharedMachine {
  readonly name: string;
  readonly last_contact: number;
  /** It is this machine. */
  readonly self: boolean;
  /** Of what it says of itself. null: this machine has no secret to check it with, or it must report again (`recovering`). */
  readonly signature: Signature | null;
  /** It stopped, and had published everything. */
  readonly stopped: boolean;
  /** It did not stop, and has not contacted the store for a minute. */
  readonly silent: boolean;
  /** The owner said that it is lost. */
  readonly lost: boolean;
  /** The fingerprints of the keys that it uses. */
  readonly keys: readonly string[];
  /** What it was granted of the running limits of this machine's tools, and did not use. */
  readonly holds: readonly SharedHold[];
}

/** Requests, tokens, micro-dollars or places. */
export interface SharedHold {
  readonly tool: string;
  readonly limit: LimitKind;
  /** null: it has no period. */
  readonly per: Period | null;
  readonly amount: number;
}

/** codex requests/day 12, spend/day $1.20; scripts concurrent 1 */
export function holdsInWords(holds: readonly SharedHold[]): string {
  return listTools(holds)
    .map((tool) => {
      const own = holds.filter((hold) => hold.tool === tool);
      const parts = own.map((hold) => `${limitName(hold)} ${countInWords(hold.limit, hold.amount)}`);
      return `${tool} ${parts.join(", ")}`;
    })
    .join("; ");
}

function listTools(holds: readonly SharedHold[]): string[] {
  return [...new Set(holds.map(({ tool }) => tool))];
}

/** Something about the other machines, or about what they wait for. */
interface SharedProblem extends Problem {
  readonly level: "problem" | "warning";
}

/** For `status` and `doctor`. Only of a store that is connected: what is known of the machines may be old otherwise. */
export function sharedProblems(shared: SharedStatus, now: number): SharedProblem[] {
  if (shared.state !== "connected") return [];
  const problems = [...sameNames(shared, now), ...recovery(shared)];
  for (const machine of shared.machines) {
    const { name, silent, last_contact: contact, holds = [] } = machine;
    if (!silent || holds.length === 0 || shared.recovering.includes(name)) continue;
    const problem = `machine ${name} has been silent for ${durationInWords(now - contact)}, and keeps what it holds: ${holdsInWords(holds)}`;
    problems.push({ level: "warning", problem, next: startOrRelease(name, listTools(holds)) });
  }
  return problems;
}

function sameNames({ machines, tools = [] }: SharedStatus, now: number): SharedProblem[] {
  const present = machines.filter(({ lost }) => !lost);
  const names = [...new Set(present.map(({ name }) => name))];
  return names.flatMap((name) => {
    const same = present.filter((machine) => machine.name === name);
    if (same.length < 2) return [];
    const problem = `${same.length} machines have the name ${name}, so keybearer cannot distinguish what they hold and send`;
    const away = same.find(({ silent, stopped }) => silent || stopped);
    const rename = "set shared.machine to another name on one of them";
    if (away === undefined) return [{ level: "problem" as const, problem, next: rename }];
    const contact = durationInWords(now - away.last_contact);
    return [
      {
        level: "problem" as const,
        problem: `${problem}. the last contact of one was ${contact} ago`,
        next: `if it was set up again: ${releaseCommands(name, tools.slice(0, 1))}; otherwise ${rename}`,
      },
    ];
  });
}

/** undefined: from a daemon before an update. */
function recovery({ settled = true, recovering, tools = [] }: SharedStatus): SharedProblem[] {
  if (settled && recovering.length === 0) return [];
  const what =
    "the store was restarted or lost its data, and grants nothing for running limits (store-unavailable)";
  const [first] = recovering;
  if (first === undefined) {
    const problem = `${what} for some seconds, in which the machines join again`;
    return [{ level: "warning", problem, next: "wait 15 seconds" }];
  }
  const problem = `${what} until these machines have reported: ${recovering.join(", ")}`;
  return [{ level: "problem", problem, next: startOrRelease(first, tools.slice(0, 1)) }];
}

function startOrRelease(machine: string, tools: readonly string[]): string {
  return `start keybearer there; if ${machine} is lost: ${releaseCommands(machine, tools)}`;
}

function releaseCommands(machine: string, tools: readonly string[]): string {
  const named = tools.length === 0 ? ["<tool>"] : tools;
  return named.map((tool) => advice.releaseMachine(tool, machine)).join("; ");
}

/** Why this machine cannot take part in what is shared. */
export const UNKNOWN_TIMEZONE: Problem = {
  problem: "the time zone of this machine has no known name",
  next: "set shared.timezone in config.yaml, to the same on all machines",
};

/** Makes a secret. */
export const MAKE_SECRET = "openssl rand -hex 32";

export const SHORT_SECRET: Problem = {
  problem: `its secret has fewer than ${MIN_SECRET} characters, and could be guessed`,
  next: `make one with: ${MAKE_SECRET}`,
};

/** Why the store's password or secret cannot be used; null: it can, or config.yaml has none. */
export function unusableSecret(
  name: "password" | "secret",
  setting: string,
  secret: KeyState | null,
): Problem | null {
  if (secret === null || secret.state === "ready") return null;
  if (secret.state === "needs-trust") {
    const { what, from, to } = secret;
    const problem = `${what} waits for your confirmation: ${from} → ${to}`;
    return { problem, next: advice.trust("shared") };
  }
  const next = secret.next ?? `correct ${setting} in config.yaml`;
  return { problem: `its ${name} cannot be read: ${secret.problem}`, next };
}
