import { parseArgs } from "node:util";
import { PROXIES } from "./candidates.ts";
import { GATEWAY_HELP, GATEWAYS } from "./gateways.ts";

const PARTS = ["requests", "latency", "streams", "delay", "scrapes", "watched", "processes", "usage-log"];

export interface Options {
  readonly help: boolean;
  readonly quick: boolean;
  /** Only what each step of a request costs. */
  readonly steps: boolean;
  readonly json: boolean;
  /** The file that gets the JSON, too. */
  readonly save: string | null;
  /** Names of candidates; empty for the default ones. */
  readonly only: readonly string[];
  readonly parts: readonly string[];
}

export const HELP = `npm run bench -- [options]

CPU per request, latency, streams and memory of keybearer with everything on, beside others, in turns.
Needs Linux, because CPU time is read from /proc. A full run takes a quarter of an hour.

  --quick       keybearer, http-proxy-3 and nginx only, in under a minute
  --steps       what each step of a request costs, in builds with one step on; takes five minutes
  --only NAME   only this candidate; repeatable (${PROXIES.map(({ name }) => name).join(", ")} or a gateway)
  --part NAME   only this part; repeatable (${PARTS.join(", ")})
  --json        print JSON instead of tables
  --save FILE   write the JSON to a file, too

${GATEWAY_HELP}
A candidate that is not installed is left out, and the report says so.
`;

/** Throws with a message for the user. */
export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      help: { type: "boolean", default: false },
      quick: { type: "boolean", default: false },
      steps: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      save: { type: "string" },
      only: { type: "string", multiple: true, default: [] },
      part: { type: "string", multiple: true, default: [] },
    },
  });
  const { help, quick, steps, json, save = null, only, part } = values;
  if (steps && args.length > 1) throw new Error("--steps has no other options");
  checkNames(
    "--only",
    only,
    [...PROXIES, ...GATEWAYS].map(({ name }) => name),
  );
  checkNames("--part", part, PARTS);
  return { help, quick, steps, json, save, only, parts: part.length > 0 ? part : PARTS };
}

function checkNames(option: string, given: readonly string[], known: readonly string[]): void {
  const unknown = given.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new Error(`${option} ${unknown}: choose from ${known.join(", ")}`);
}
