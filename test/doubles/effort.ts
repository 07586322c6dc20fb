import type { Test } from "tap";

/** Whether this is the long suite, `npm run test:long`. It runs the files that import this, and those named *.long.test.ts. */
export const LONG = process.env.KEYBEARER_LONG === "1";

/** How often something is repeated in `npm test` and in `npm run test:long`, unless the variable says otherwise. */
export function repeats(variable: string, usual: number, long: number): number {
  return Number(process.env[variable] ?? (LONG ? long : usual));
}

/** How often a property is tried: a third of this in `npm test`. */
export function runs(sample: number): number {
  return repeats("KEYBEARER_PROPERTY_RUNS", Math.ceil(sample / 3), sample);
}

/** What a test is repeated for: in `npm test` for one of them, in `npm run test:long` for all. */
export function oneOf<const Each>(all: readonly Each[], usual: Each): readonly Each[] {
  return LONG ? all : [usual];
}

type Body = (t: Test) => unknown;

/** A test of the long suite, in a file whose other tests are in `npm test`, too. Options are those of t.test. */
export function longTest(t: Test, title: string, ...test: [Body] | [options: object, body: Body]): void {
  if (!LONG) return;
  const [body, options = {}] = test.toReversed() as [Body, object?];
  t.test(title, options, body);
}
