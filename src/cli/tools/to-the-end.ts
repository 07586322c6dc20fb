const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Does what must not be left half done: Ctrl-C waits until its end, and it may look whether one came. */
export async function deferSignals<Done>(work: (interrupted: () => boolean) => Promise<Done>): Promise<Done> {
  let came = false;
  const interrupt = () => {
    came = true;
  };
  for (const signal of SIGNALS) process.on(signal, interrupt);
  try {
    return await work(() => came);
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupt);
  }
}
