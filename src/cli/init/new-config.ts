import { formatScalar } from "../../config/edit-layout.ts";
import type { NewToken } from "../../config/edit-tools.ts";

export interface FirstTool {
  readonly baseUrl: string;
  readonly tool: string;
  /** Where its key lies, as config.yaml writes it. */
  readonly key: string;
  readonly token: NewToken;
}

/** A first config.yaml: short, with what people need next switched off by a # that is right in front of it. */
export function newConfig({ baseUrl, tool, key, token }: FirstTool): string {
  return `# keybearer's configuration. Every save counts at once; a file with a mistake in it
# changes nothing, and \`keybearer check\` names the mistake.
# What has a # right in front of it is switched off.

gateways:
  main:
    # It ends in the version segment (/v1), never in an endpoint.
    base_url: ${formatScalar(baseUrl)}
    # Plan groups as the console shows them: the factor on the price, the models.
    #groups:
    #  coding: { multiplier: 1.5, models: ["claude-*", "gpt-5*"] }
    # Compare the console's usage log with ours; then: keybearer mirror login
    #console: { url: ${formatScalar(new URL(baseUrl).origin)} }

# One for each program that calls, each with a key of its own, so that a leak
# harms one tool and usage can be told apart. Another one: keybearer tools add <tool>
tools:
  ${formatScalar(tool)}:
    key: ${formatScalar(key)}
    token: [{ name: ${formatScalar(token.name)}, hash: ${token.hash}, created: ${token.created} }]
    #group: coding
    #limits: { requests: 60/minute, spend: [$5/day, $60/month], concurrent: 4 }
    #quota: $200
    #expires: 2027-03-31
    #model: claude-sonnet-4-5
`;
}
