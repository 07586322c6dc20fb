import { formatScalar } from "../../config/edit-layout.ts";
import { parseConfig } from "../../config/parse.ts";
import type { KeySource } from "../../config/schema.ts";
import type { Problem } from "../../core/display.ts";
import type { Paths } from "../../core/paths.ts";
import { isInside, type KeyReading, readKey } from "../../keys/sources.ts";
import { stdio } from "../ui/stdio.ts";

/* Keys that are somewhere already: where config.yaml or `--from` says. */

type From = { readonly source: KeySource } | Problem;

/** Parses `--from` as config.yaml is parsed. It may be a key by mistake, so it is never printed. */
export function readFrom(text: string, home: string): From {
  if (/^(?:command|op):/.test(text))
    return {
      problem:
        "a command is written into config.yaml by hand: key: { command: [/absolute/program, argument] }",
      next: null,
    };
  if (!/^(?:env|file|keychain):/.test(text))
    return {
      problem:
        "--from takes env:NAME, file:/PATH or keychain:keybearer/NAME. a key itself is never an argument",
      next: "--key-stdin",
    };
  const trial = `gateway: https://gateway.example.com/v1\ntools: { x: { key: ${formatScalar(text)} } }\n`;
  const { config, problems } = parseConfig(trial, home);
  const source = config?.tools.x?.key;
  if (source !== undefined) return { source };
  const [first] = problems;
  return { problem: `--from: ${first?.message ?? "not understood"}`, next: first?.hint ?? "env:NAME" };
}

/** Whether other options contradict `--from`; null: they do not. */
export function fromConflict(options: {
  readonly from?: string;
  readonly keyStdin?: boolean;
  readonly store?: string;
}): string | null {
  if (options.from === undefined || (!options.keyStdin && options.store === undefined)) return null;
  return "with --from the key stays where it is: leave --key-stdin and --store out";
}

/**
 * Reads a tool's key if that runs no command and opens no file that may not be trusted yet: only the daemon decides that.
 * null: not read.
 */
export async function readOwn(source: KeySource, paths: Paths): Promise<KeyReading | null> {
  if (source.kind === "command") return null;
  if (source.kind === "file" && !isInside(source.path, paths.own)) return null;
  return readNamed(source, paths);
}

/** The same for a source that the person names in this command. */
export function readNamed(source: KeySource, paths: Paths): Promise<KeyReading> {
  return readKey(source, { env: stdio().env, home: paths.own, notKeys: paths.notKeys });
}
