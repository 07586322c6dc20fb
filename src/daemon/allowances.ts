import type { Config } from "../config/schema.ts";
import type { Controls } from "../control/routes.ts";
import { limitStatuses } from "../control/tool-status.ts";
import { advice } from "../core/advice.ts";
import type { Logger } from "../core/log.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { InFlight } from "../proxy/in-flight.ts";
import type { ReleaseResult, Shared } from "../shared/shared.ts";
import type { Journal } from "../usage/journal/journal.ts";

interface AllowanceDeps {
  readonly journal: Journal;
  readonly limiter: Limiter;
  readonly inFlight: InFlight;
  readonly shared: Pick<Shared, "release" | "listParts">;
  readonly log: Logger;
  readonly config: () => Config;
}

/** What the owner may do to a tool's running window and its requests in flight. */
export function createAllowances({
  journal,
  limiter,
  inFlight,
  shared,
  log,
  config,
}: AllowanceDeps): Pick<Controls, "allow" | "release" | "expectRename" | "cut"> {
  return {
    allow(name, { kind, amount, until }, peer) {
      const tool = config().tools[name];
      if (tool === undefined) return null;
      const answer = (problem: string | null) => ({
        tool: name,
        levels: limitStatuses(limiter.levels(tool), (level) => shared.listParts(name, level)),
        problem,
      });
      if (tool.limits[kind].length === 0) return answer(`tool ${name} has no limit on ${kind}`);
      const allowance = { limit: kind, amount, given_at: limiter.now(tool), until };
      // Written first: it must not be forgotten at the next start.
      if (!journal.append({ kind: "lift", tool: name, ...allowance, given_by: peer }))
        return answer(`the usage log cannot be written → ${advice.status()}`);
      limiter.allow(name, allowance);
      const what =
        amount === 0 ? `the extra allowances of ${kind} were taken back` : `one extra allowance of ${kind}`;
      log.warn({ tool: name, kind, amount, until, peer }, `tool ${name}: ${what}`);
      return answer(null);
    },
    async release(name, machine, peer) {
      const tool = config().tools[name];
      if (tool === undefined) return null;
      const released = await shared.release(tool, machine);
      if (released === "released")
        log.warn({ tool: name, machine, peer }, `tool ${name}: what machine ${machine} held was released`);
      const problem = released === "released" ? null : RELEASE_PROBLEMS[released](name, machine);
      return {
        levels: limitStatuses(limiter.levels(tool), (level) => shared.listParts(name, level)),
        problem,
      };
    },
    expectRename(name, to, peer) {
      if (config().tools[name] === undefined) return null;
      // A name that is taken: the command's edit is refused, and nothing will be renamed.
      if (config().tools[to] !== undefined) return {};
      limiter.expectRename({ from: name, to });
      log.info({ tool: name, to, peer }, `tool ${name} will be renamed to ${to}`);
      return {};
    },
    cut(name, peer) {
      const cut = inFlight.cut(name);
      if (cut === 0 && config().tools[name] === undefined) return null;
      if (cut > 0) log.warn({ tool: name, cut, peer }, `tool ${name}: requests in flight were cut`);
      return { cut };
    },
  };
}

const RELEASE_PROBLEMS: Readonly<
  Record<Exclude<ReleaseResult, "released">, (tool: string, machine: string) => string>
> = {
  unknown: (_, machine) => `there is no machine ${machine} at the shared store → ${advice.status()}`,
  present: (_, machine) => `machine ${machine} is connected to the shared store, so nothing of it is lost`,
  unreachable: () => `the shared store is not reachable → ${advice.doctor()}`,
  "not shared": (tool) => `tool ${tool} shares its limits with no other machine`,
};
