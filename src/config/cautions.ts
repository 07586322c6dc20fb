import { advice } from "../core/advice.ts";
import type { Secret } from "../core/secret.ts";
import { type ConfigProblem, warning } from "./problems.ts";
import { type Config, isSameSource, type Tool } from "./schema.ts";

/**
 * Settings that work but should be changed. Only for `check` and `doctor`: the log would repeat them at every reload.
 * @param keyOf null: the key is not known
 */
export function configCautions(config: Config, keyOf: (tool: Tool) => Secret | null): ConfigProblem[] {
  const tools = Object.values(config.tools);
  return [...writtenKeys(tools), ...sharedKeys(tools, keyOf), ...unlimitedTools(tools)];
}

/** Copies of config.yaml, such as backups and pasted questions, take the key with them. */
function writtenKeys(tools: readonly Tool[]): ConfigProblem[] {
  const names = tools.filter(({ key }) => key.kind === "literal").map(({ name }) => name);
  const [first] = names;
  if (first === undefined) return [];
  const message =
    names.length === 1
      ? `the key of ${first} is written into config.yaml, and every copy of the file has it`
      : `the keys of ${names.join(", ")} are written into config.yaml, and every copy of the file has them`;
  // It stores the new key in the keychain or in a file, never in config.yaml.
  return [warning("tools", message, advice.rotate(first))];
}

/** Two sources can hold the same key. The parser reports two tools with the same source. */
function sharedKeys(tools: readonly Tool[], keyOf: (tool: Tool) => Secret | null): ConfigProblem[] {
  const found: ConfigProblem[] = [];
  const owners = new Map<string, Tool>();
  for (const tool of tools) {
    const key = keyOf(tool);
    if (key === null) continue;
    const digest = key.digest("shared key");
    const owner = owners.get(digest);
    if (owner !== undefined && !isSameSource(tool.key, owner.key)) {
      const message = `tools ${owner.name} and ${tool.name} share one key, ${key.fingerprint}`;
      const hint = "create a separate key for each in the gateway's console";
      found.push(warning(`tools.${tool.name}.key`, message, hint));
    }
    owners.set(digest, owner ?? tool);
  }
  return found;
}

/** A tool whose requests do not pass here cannot be limited here. */
function unlimitedTools(tools: readonly Tool[]): ConfigProblem[] {
  const names = tools
    .filter(({ enabled, watchOnly, quota }) => enabled && !watchOnly && quota === null)
    .filter(({ limits: { requests, tokens, spend, concurrent, session } }) => {
      return requests.length + tokens.length + spend.length === 0 && concurrent === null && session === null;
    })
    .map(({ name }) => name);
  const [first] = names;
  if (first === undefined) return [];
  const message = `no limit for ${names.join(", ")}: a program in a loop can spend the whole balance`;
  // With a limit on money, a model whose price is not known is refused.
  const hint = `${advice.limitSpend(first)}; or for models without a known price: limits.requests=1000/day`;
  return [warning("tools", message, hint)];
}
