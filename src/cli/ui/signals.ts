const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Runs work that must not be interrupted. Ctrl-C has no effect until it ends; `interrupted` is whether it was pressed. */
export async function deferSignals<Done>(work: (interrupted: () => boolean) => Promise<Done>): Promise<Done> {
  let isInterrupted = false;
  const interrupt = () => {
    isInterrupted = true;
  };
  for (const signal of SIGNALS) process.on(signal, interrupt);
  try {
    return await work(() => isInterrupted);
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupt);
  }
}
