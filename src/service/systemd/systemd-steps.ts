import type { FoundFile, ServiceState, Step } from "../manager.ts";

export const UNIT = "keybearer.service";

/** What lies there and runs, before anything is changed. */
export interface Look {
  readonly state: ServiceState;
  /** The manager has not read the file as it lies there, as after an installation that was cut off. */
  readonly unread: boolean;
}

export type InstallStep =
  | { readonly kind: "write" }
  /** must: what could not be done if it fails; without, it is no matter. */
  | { readonly kind: "run"; readonly words: readonly string[]; readonly must?: "started" | "restarted" };

/** Both what is done and what --dry-run prints: the one cannot differ from the other. */
export function installSteps({ state, unread }: Look, text: string): InstallStep[] {
  const { file, active } = state;
  const same = file.kind === "ours" && file.text === text;
  const anew = !same || unread;
  const steps: InstallStep[] = same ? [] : [{ kind: "write" }];
  if (anew) steps.push({ kind: "run", words: ["daemon-reload"] });
  // A unit that failed too often is not started again until it is forgiven.
  if (active === "failed") steps.push({ kind: "run", words: ["reset-failed", UNIT] });
  steps.push({ kind: "run", words: ["enable", "--now", UNIT], must: "started" });
  if (anew && (active === "running" || active === "starting"))
    steps.push({ kind: "run", words: ["restart", UNIT], must: "restarted" });
  return steps;
}

/** As --dry-run prints them. */
export function planOf(steps: readonly InstallStep[], file: string, text: string): Step[] {
  return steps.map((step) =>
    step.kind === "write" ? { kind: "write", file, text } : { kind: "run", argv: systemctl(...step.words) },
  );
}

/** Nothing where nothing is: the manager may still run one whose file is gone. */
export function removalPlan(found: FoundFile, active: ServiceState["active"], file: string): Step[] {
  if (found.kind === "none" && active === "stopped") return [];
  const run = (...words: readonly string[]): Step => ({ kind: "run", argv: systemctl(...words) });
  const removal: Step[] = found.kind === "none" ? [] : [{ kind: "remove", file }];
  return [
    ...[run("stop", UNIT), run("disable", UNIT), ...removal],
    ...[run("daemon-reload"), run("reset-failed", UNIT)],
  ];
}

export function systemctl(...words: readonly string[]): string[] {
  return ["systemctl", "--user", ...words];
}
