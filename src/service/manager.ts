import type { InstalledUnit, ServiceSpec } from "./spec.ts";

/** One thing that is done, as --dry-run prints it. */
export type Step =
  | { readonly kind: "write"; readonly file: string; readonly text: string }
  | { readonly kind: "remove"; readonly file: string }
  | { readonly kind: "make"; readonly folder: string }
  | { readonly kind: "run"; readonly argv: readonly string[] };

/** What would be done as things are now, in order; or why it would not be. */
export type Plan =
  | { readonly ok: true; readonly steps: readonly Step[] }
  | { readonly ok: false; readonly why: string; readonly next: string };

export type Availability =
  | { readonly ok: true }
  /** why: what keeps it from being used. byHand: what to do then, a sentence. */
  | { readonly ok: false; readonly why: string; readonly byHand: string };

/** What lies where the service's file belongs. */
export type FoundFile =
  | { readonly kind: "none" }
  | { readonly kind: "ours"; readonly text: string; readonly unit: InstalledUnit }
  /** Not written by keybearer, or not a plain file: it is left alone. */
  | { readonly kind: "foreign"; readonly why: string };

export interface ServiceState {
  readonly file: FoundFile;
  readonly active: "running" | "starting" | "stopping" | "failed" | "stopped";
  /** The same in the manager's own words, such as active (running). */
  readonly words: string;
  readonly pid: number | null;
  /** Milliseconds UTC; null: it does not run, or the manager does not tell. */
  readonly since: number | null;
  /** How often it was started again after a failure; launchd counts every start. */
  readonly restarts: number | null;
  /** It comes back at the next login. */
  readonly enabled: boolean;
  readonly lastExit: LastExit | null;
  /** What the daemon told the manager last, such as why it did not start. null: nothing, or launchd. */
  readonly said: string | null;
  /** It sees other processes only out of a user namespace. null: the manager does not tell. */
  readonly inNamespace: boolean | null;
}

/** How the last process ended, where the manager tells. */
export interface LastExit {
  readonly code: number | null;
  readonly signal: string | null;
}

/** What came of a change. */
export type Done =
  | { readonly ok: true }
  | { readonly ok: false; readonly why: string; readonly next?: string | null };

export type Installed =
  /** before: what the file was. restarted: a running one was drained and started anew. */
  | {
      readonly ok: true;
      readonly before: "none" | "same" | "different";
      readonly restarted: boolean;
    }
  /** next: what to do first; null: it was told to run, and does not. */
  | { readonly ok: false; readonly why: string; readonly next: string | null };

export interface LogRequest {
  readonly follow: boolean;
  readonly lines: number;
  readonly onLine: (line: string) => void;
  readonly signal?: AbortSignal;
}

/** The part of the system that starts programs at login and again after a crash. */
export interface ServiceManager {
  readonly kind: "systemd" | "launchd";
  /** Where the unit or agent lies, or would. */
  readonly file: string;
  /** What an installation would write and run now. Changes nothing. */
  plan(spec: ServiceSpec): Promise<Plan>;
  /** The same for taking it away; no steps: there is nothing to take away. */
  planRemoval(): Promise<Plan>;
  available(): Promise<Availability>;
  /** What lies where the file belongs. Asks nobody but the file system. */
  found(): Promise<FoundFile>;
  /**
   * The variables that the manager gives its services; `names` are those that matter, for one that has to be asked for
   * each. They may hold secrets: for trying sources, never for printing.
   */
  environment(names: readonly string[]): Promise<Readonly<Record<string, string>>>;
  state(): Promise<ServiceState>;
  install(spec: ServiceSpec): Promise<Installed>;
  /** Stops it, which drains, and takes the file away. */
  uninstall(): Promise<Done>;
  /** Requests under way finish first. */
  restart(): Promise<Done>;
  logs(request: LogRequest): Promise<Done>;
  /** What keeps it from being there before a login, in words; null: nothing, or it is not known. */
  lingerHint(): Promise<string | null>;
}
