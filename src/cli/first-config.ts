import { formatScalar } from "../config/edit-layout.ts";
import type { NewToken } from "../config/edit-tools.ts";
import { advice } from "../core/advice.ts";
import type { Budget } from "./budget.ts";

interface FirstTool {
  readonly baseUrl: string;
  readonly tool: string;
  /** The key's source as config.yaml has it. */
  readonly key: string;
  readonly token: NewToken;
  readonly budget: Budget;
}

/** A first config.yaml: short, with the settings that people need next as comments. */
export function newConfig({ baseUrl, tool, key, token, budget: { limits, prices } }: FirstTool): string {
  const limitLine =
    limits === null
      ? "#limits: { requests: 60/minute, spend: [$5/day, $60/month], concurrent: 4 }"
      : `# Others: requests: 60/minute, spend: [$5/day, $60/month], concurrent: 4\n    limits: ${limits}`;
  const priceLines =
    prices.length === 0
      ? ""
      : `\n# Dollars per million tokens.\nprices:\n${prices.map((line) => `  ${line}\n`).join("")}`;
  return `# keybearer's configuration. Every save counts at once; a file with a mistake in it
# changes nothing, and \`${advice.check()}\` names the mistake.
# What has a # right in front of it is switched off.

gateways:
  main:
    # It ends in the version segment (/v1), never in an endpoint.
    base_url: ${formatScalar(baseUrl)}
    # Plan groups as the console shows them: the factor on the price, the models.
    #groups:
    #  coding: { multiplier: 1.5, models: ["claude-*", "gpt-5*"] }
    # Compare the console's usage log with ours; then: ${advice.mirrorLogin()}
    #console: { url: ${formatScalar(new URL(baseUrl).origin)} }

# One for each program that calls, each with a key of its own, so that a leak
# harms one tool and usage is counted for each. Another one: ${advice.addTool("<tool>")}
tools:
  ${formatScalar(tool)}:
    key: ${formatScalar(key)}
    token: [{ name: ${formatScalar(token.name)}, hash: ${token.hash}, created: ${token.created} }]
    #group: coding
    ${limitLine}
    #quota: $200
    #expires: 2027-03-31
    #model: claude-sonnet-4-5
${priceLines}`;
}
