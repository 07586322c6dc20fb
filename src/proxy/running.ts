import type { Request } from "./request.ts";

/** The requests under way, so that an owner can end a tool's at once. */
export interface Running {
  /** Notes one, and the connection it came over. */
  add(request: Request, connection: Destroyable): void;
  remove(request: Request): void;
  /** Cuts all of a tool's. How many there were. */
  cut(tool: string): number;
  cutAll(): void;
}

interface Destroyable {
  destroy(): unknown;
}

export function createRunning(): Running {
  const all = new Map<Request, Destroyable>();
  const cutWhere = (wanted: (request: Request) => boolean) => {
    const found = [...all].filter(([request]) => wanted(request));
    for (const [request, connection] of found) {
      request.cut = true;
      connection.destroy();
    }
    return found.length;
  };
  return {
    add: (request, connection) => void all.set(request, connection),
    remove: (request) => void all.delete(request),
    cut: (tool) => cutWhere((request) => request.tool?.name === tool),
    cutAll: () => void cutWhere(() => true),
  };
}
