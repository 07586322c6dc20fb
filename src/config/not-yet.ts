import type { Config } from "./shape.ts";

/**
 * Settings that are read and checked but do nothing yet. Nobody must believe that what they wrote holds;
 * each line goes when its behaviour comes.
 */
export function notYetHeld(config: Config): { path: string; message: string }[] {
  const found: { path: string; message: string }[] = [];
  const say = (path: string, what: string) => {
    found.push({ path, message: `${what} is read, but this version does not act on it yet` });
  };
  for (const { name, console } of Object.values(config.gateways)) {
    if (console?.kind === "litellm" || console?.kind === "openrouter")
      say(`gateways.${name}.console.kind`, `a console of kind ${console.kind}`);
  }
  return found;
}
