/** One timer that moves from one kind of patience to the next. */
export interface Deadline {
  /** From now on, this long without touch() ends in `expired(phase)`. */
  await(phase: Phase, ms: number): void;
  /** Something moved: if this phase is the present one, it starts again. */
  touch(phase: Phase): void;
  stop(): void;
}

export type Phase = "connect" | "first_byte" | "idle";

export function createDeadline(expired: (phase: Phase, ms: number) => void): Deadline {
  let timer: NodeJS.Timeout | null = null;
  let present: Phase | null = null;
  return {
    await(phase, ms) {
      if (timer !== null) clearTimeout(timer);
      present = phase;
      timer = setTimeout(() => expired(phase, ms), ms);
    },
    touch(phase) {
      if (phase === present) timer?.refresh();
    },
    stop() {
      if (timer !== null) clearTimeout(timer);
      timer = null;
    },
  };
}
