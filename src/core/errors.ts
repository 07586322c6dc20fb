/** What an error says, for a sentence: no stack, no type. */
export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
