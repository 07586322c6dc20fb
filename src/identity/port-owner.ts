export interface PortOwner {
  readonly pid: number;
  readonly program: string;
}

/** Who listens on a port, where the system tells it to this user; else null. */
export async function portOwner(port: number): Promise<PortOwner | null> {
  try {
    // Only now: it is large, and whoever finds the port free never needs it.
    const { networkConnections } = await import("systeminformation");
    for (const connection of await networkConnections()) {
      const { pid, localPort, state, process } = connection;
      if (state === "LISTEN" && localPort === String(port) && pid > 0) return { pid, program: process };
    }
  } catch {
    // Not being able to name the owner must not hide that the port is taken.
  }
  return null;
}
