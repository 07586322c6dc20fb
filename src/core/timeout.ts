/** Longer timers fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** What the work returns, or `late` if that takes longer; the work itself goes on. Rejects as the work does. */
export async function withTimeout<Done, Late>(
  work: Promise<Done>,
  ms: number,
  late: Late,
): Promise<Done | Late> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<Late>((resolve) => {
    if (ms <= MAX_TIMER_MS) timer = setTimeout(() => resolve(late), ms);
  });
  try {
    return await Promise.race([work, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
