import type { ConsoleRow } from "../console-row.ts";
import type { OurTokens } from "./context.ts";

/** A row's tokens; cache null: they are part of the input. */
export interface RowTokens {
  readonly input: number;
  readonly cache: { readonly read: number; readonly write: number } | null;
  readonly output: number;
}

/** null: the console does not tell them all. */
export function rowTokens(row: ConsoleRow): RowTokens | null {
  const { input_tokens: input, output_tokens: output, cache_read_tokens, cache_write_tokens } = row;
  if (input === null || output === null) return null;
  if (cache_read_tokens !== null && cache_write_tokens !== null) {
    return { input, cache: { read: cache_read_tokens, write: cache_write_tokens }, output };
  }
  return { input: input + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0), cache: null, output };
}

export function wholeInput({ input, cache_read, cache_write }: OurTokens): number {
  return input + cache_read + cache_write;
}

export function theirWholeInput({ input, cache }: RowTokens): number {
  return cache === null ? input : input + cache.read + cache.write;
}

export function agree(ours: OurTokens, theirs: RowTokens): boolean {
  if (ours.output !== theirs.output) return false;
  if (theirs.cache === null) return wholeInput(ours) === theirs.input;
  return (
    ours.input === theirs.input &&
    ours.cache_read === theirs.cache.read &&
    ours.cache_write === theirs.cache.write
  );
}
