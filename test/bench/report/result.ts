import type { CandidateName } from "../candidates/candidate.ts";
import type { DownloadSeries } from "../measures/downloads.ts";
import type { FlatMemory } from "../measures/flat-memory.ts";
import type { House } from "../measures/house.ts";
import type { Idle } from "../measures/idle.ts";
import type { Reloads } from "../measures/reload.ts";
import type { LoadSeries } from "../measures/requests.ts";
import type { StartSeries } from "../measures/starts.ts";
import type { StreamSeries } from "../measures/streams.ts";
import type { Machine } from "./machine.ts";

/** Everything that was measured, round by round. */
export interface Measured {
  readonly loads: readonly LoadSeries[];
  readonly streams: readonly StreamSeries[];
  readonly downloads: readonly DownloadSeries[];
  readonly starts: readonly StartSeries[];
  readonly idle: readonly Idle[];
  readonly flat: readonly FlatMemory[];
  readonly reload: Reloads | null;
  readonly house: House;
}

export interface Contender {
  readonly name: CandidateName;
  readonly title: string;
  readonly version: string;
  /** Some write bodies anew. */
  readonly bodiesUnchanged: boolean;
}

export interface Setting {
  readonly machine: Machine;
  /** When it began, ISO. */
  readonly date: string;
  readonly quick: boolean;
  /** What others took of the machine's processors while it ran, from 0 to 1; null where the system does not tell. */
  readonly othersShare: number | null;
  readonly rounds: number;
  readonly secondsEach: number;
  readonly loadGenerator: string;
  readonly upstream: string;
  readonly contenders: readonly Contender[];
  /** Who was not measured, and why. */
  readonly missing: readonly { readonly name: CandidateName; readonly why: string }[];
}
