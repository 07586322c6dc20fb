import { parseConfig } from "../../config/parse.ts";
import { baseUrl } from "../../config/values.ts";
import { EXIT } from "../../core/errors.ts";
import { canceled, failNull, notice } from "../ui/messages.ts";
import type { Prompter } from "../ui/prompts.ts";

export interface InitOptions {
  readonly gateway?: string;
  readonly tool?: string;
  readonly keyStdin?: boolean;
  readonly store?: string;
  readonly yes?: boolean;
  readonly probe?: boolean;
  readonly config?: string;
}

/** The base URL, as it was given or as the person types it. null: told why there is none. */
export async function askAddress(given: string | undefined, person: Prompter | null): Promise<string | null> {
  return answered(
    given,
    person,
    "base URL of the gateway, from its console (it ends in /v1): ",
    "--gateway https://gateway.example.com/v1",
    (text) => {
      const reading = baseUrl(text);
      if ("value" in reading) return null;
      return `${reading.fault}${reading.hint === undefined ? "" : ` → ${reading.hint}`}`;
    },
  );
}

/** The first tool's name. */
export async function askTool(given: string | undefined, person: Prompter | null): Promise<string | null> {
  return answered(
    given,
    person,
    "name of the first tool that will call, such as claude-code or codex: ",
    "--tool codex",
    toolNameFault,
  );
}

/** Held against the same rules as config.yaml, which are written down in one place. */
export function toolNameFault(name: string): string | null {
  const trial = `gateway: https://gateway.example.com/v1\ntools: { ${JSON.stringify(name)}: {} }\n`;
  const problem = parseConfig(trial, "/").problems.find(({ severity }) => severity === "error");
  return problem === undefined ? null : `${problem.message}: ${problem.hint ?? "choose another"}`;
}

async function answered(
  given: string | undefined,
  person: Prompter | null,
  question: string,
  flag: string,
  faultOf: (text: string) => string | null,
): Promise<string | null> {
  if (given === undefined && person === null)
    return failNull(`nobody is here to ask. name it: ${flag}`, EXIT.usage);
  for (let text = given; ; text = undefined) {
    const said = text ?? (await person?.text(question)) ?? null;
    if (said === null) return canceled();
    const bare = said.trim();
    const fault = faultOf(bare);
    if (fault === null) return bare;
    if (person === null) return failNull(fault, EXIT.usage);
    notice(fault);
  }
}
