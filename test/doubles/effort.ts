/** Whether this is the long suite, `npm run test:long`. It runs the files that import this, and those named *.long.test.ts. */
export const LONG = process.env.KEYBEARER_LONG === "1";

/** How often something is repeated in `npm test` and in `npm run test:long`, unless the variable says otherwise. */
export function repeats(variable: string, usual: number, long: number): number {
  return Number(process.env[variable] ?? (LONG ? long : usual));
}
