/** How often a property is tried: a sample, unless the environment asks for more. */
export function runs(sample: number): number {
  return Number(process.env.KEYBEARER_PROPERTY_RUNS ?? sample);
}
