/** Longer timers fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** What the work returns, or `late` if that takes longer or is stopped; the work itself goes on. Rejects as the work does. */
export async function withTimeout<Done, Late>(
  work: Promise<Done>,
  ms: number,
  late: Late,
  stop?: AbortSignal,
): Promise<Done | Late> {
  let timer: NodeJS.Timeout | undefined;
  let end = () => {};
  const timeout = new Promise<Late>((resolve) => {
    end = () => resolve(late);
    if (ms <= MAX_TIMER_MS) timer = setTimeout(end, ms);
  });
  stop?.addEventListener("abort", end);
  if (stop?.aborted) end();
  try {
    return await Promise.race([work, timeout]);
  } finally {
    clearTimeout(timer);
    stop?.removeEventListener("abort", end);
  }
}
