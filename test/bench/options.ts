import { parseArgs } from "node:util";
import { PROXY_KINDS } from "./candidates.ts";
import { GATEWAY_HELP, GATEWAY_KINDS } from "./gateways.ts";

export const PARTS = ["requests", "latency", "streams", "delay", "processes", "usage-log"] as const;
export type Part = (typeof PARTS)[number];

export interface Options {
  readonly help: boolean;
  readonly quick: boolean;
  readonly json: boolean;
  /** The file that gets the JSON, too. */
  readonly save: string | null;
  /** Names of candidates; empty for the default ones. */
  readonly only: readonly string[];
  readonly parts: readonly Part[];
}

export const HELP = `npm run bench -- [options]

CPU per request, latency, streams and memory of keybearer with everything on, beside others, in turns.
Needs Linux: CPU time is read from /proc.

  --quick       keybearer, http-proxy-3 and nginx only, in under a minute
  --only NAME   only this candidate; repeatable (http-proxy-3, keybearer, node:http, nginx or a gateway)
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
      json: { type: "boolean", default: false },
      save: { type: "string" },
      only: { type: "string", multiple: true, default: [] },
      part: { type: "string", multiple: true, default: [] },
    },
  });
  const names = [...PROXY_KINDS, ...GATEWAY_KINDS].map(({ name }) => name);
  for (const name of values.only)
    if (!names.includes(name)) throw new Error(`--only ${name}: no such candidate (${names.join(", ")})`);
  const parts = values.part.map((name) => {
    const part = PARTS.find((known) => known === name);
    if (part === undefined) throw new Error(`--part ${name}: no such part (${PARTS.join(", ")})`);
    return part;
  });
  return {
    help: values.help,
    quick: values.quick,
    json: values.json,
    save: values.save ?? null,
    only: values.only,
    parts: parts.length > 0 ? parts : PARTS,
  };
}
