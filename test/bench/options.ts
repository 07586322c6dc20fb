import { parseArgs } from "node:util";

export interface Options {
  readonly quick: boolean;
  readonly json: boolean;
  readonly help: boolean;
  /** Where the chart and the whole result are written besides. */
  readonly chart: string | null;
  readonly save: string | null;
  readonly rounds: number | null;
  /** Programs that count as not installed. */
  readonly without: readonly string[];
}

export const HELP = `npm run bench -- [options]

  --quick        only what the ratios need, in under a minute
  --json         print JSON instead of tables
  --chart FILE   write the chart of the README as SVG
  --save FILE    write the JSON besides
  --rounds N     as many rounds instead
  --without NAME as if nginx or wrk were not installed; may be given twice
`;

/** Throws with words on what it does not know. */
export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
      chart: { type: "string" },
      save: { type: "string" },
      rounds: { type: "string" },
      without: { type: "string", multiple: true, default: [] },
    },
  });
  const { quick, json, help, chart = null, save = null, rounds, without } = values;
  if (rounds !== undefined && !/^[1-9]\d?$/.test(rounds))
    throw new Error("--rounds wants a number from 1 to 99");
  return { quick, json, help, chart, save, rounds: rounds === undefined ? null : Number(rounds), without };
}
