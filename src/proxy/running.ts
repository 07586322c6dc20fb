import { UnderWay } from "../under-way.ts";
import type { HeardSoFar } from "./hearing.ts";
import { openingOf } from "./recording.ts";
import type { Request } from "./request.ts";

/** The requests under way, so that an owner can see them, and end a tool's at once. */
export interface Running {
  /** Notes one, and the connection it came over. */
  add(request: Request, connection: Destroyable): void;
  remove(request: Request): void;
  readonly size: number;
  /** The oldest ones, at most so many, as they are now. */
  list(most: number, elapsed: number): RunningRequest[];
  /** Cuts all of a tool's. How many there were. */
  cut(tool: string): number;
  cutAll(): void;
}

/** A request under way. Nothing in it that its record will not hold as well. */
export interface RunningRequest {
  readonly id: string;
  readonly tool: string;
  readonly model: string | null;
  readonly endpoint: string;
  readonly startedAt: number;
  readonly waitedMs: number;
  /** It waits for room under its tool's limits. */
  readonly waiting: boolean;
  readonly firstByteAt: number | null;
  /** null: no answer yet. */
  readonly heard: HeardSoFar | null;
}

/** A connection that can be cut. */
export interface Destroyable {
  destroy(): unknown;
}

export function createRunning(): Running {
  const all = new UnderWay<Request>();
  const cutWhere = (wanted: (request: Request) => boolean) => {
    const found = all.list().filter(wanted);
    for (const request of found) {
      request.cut = true;
      request.connection?.destroy();
    }
    return found.length;
  };
  return {
    add(request, connection) {
      request.connection = connection;
      all.add(request);
    },
    remove: (request) => void all.delete(request),
    get size() {
      return all.size;
    },
    list: (most, elapsed) => all.list(most).map((request) => seen(request, elapsed)),
    cut: (tool) => cutWhere((request) => request.tool?.name === tool),
    cutAll: () => void cutWhere(() => true),
  };
}

function seen(request: Request, elapsed: number): RunningRequest {
  const { waiting, waitedMs, startedAt, startedElapsed, hearing } = request;
  // What its record says of it, so that no more is shown than is written down.
  const { id, tool, model, endpoint } = openingOf(request);
  const heard = hearing?.soFar() ?? null;
  const firstByte = heard?.firstByteElapsed ?? null;
  return {
    ...{ id, model, endpoint, startedAt, waiting, heard },
    tool: tool ?? "",
    waitedMs: waiting ? Math.ceil(elapsed - startedElapsed) : waitedMs,
    firstByteAt: firstByte === null ? null : Math.round(startedAt + firstByte - startedElapsed),
  };
}
