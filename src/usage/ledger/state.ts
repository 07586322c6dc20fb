/** How the usage log is, for `status`. */
export interface LedgerState {
  /** unavailable: requests are refused until it can be written again. */
  readonly condition: "ok" | "unavailable";
  /** Since when it is unavailable, wall time. */
  readonly since: number | null;
  /** Why it is unavailable, in words. */
  readonly reason: string | null;
  /** What to do about that. */
  readonly next: string | null;
  readonly file: string;
  /** Of the file and its WAL together. */
  readonly bytes: number;
  /** Finished records that are not on disk yet. */
  readonly waiting: number;
  /** Records of requests that may have reached a gateway, and found no room while the disk said no. */
  readonly lost: number;
  /** The same of refusals: nothing of them went to a gateway. */
  readonly refusalsLost: number;
  /** What a person should know although the log works, each in words. */
  readonly warnings: readonly string[];
  /** Damaged files that were kept aside. */
  readonly aside: readonly Aside[];
  /** What takes longer than a moment and is under way. */
  readonly work: Work | null;
  /** When retention, check and checkpoint last ran through, wall time. */
  readonly upkeptAt: number | null;
}

export interface Aside {
  readonly file: string;
  readonly salvage: "under way" | "done" | "not possible";
  /** Records taken over from it. */
  readonly saved: number;
  /** Places in it that could not be read. */
  readonly unreadable: number;
}

export interface Work {
  readonly what: "retention" | "salvage" | "check";
  readonly done: number;
  /** 0: not known. */
  readonly total: number;
}
