import {
  ANY_NAME,
  type ClientDescription,
  type ClientSettings,
  clientSettings,
  describedClient,
  field,
  setAll,
  textAt,
} from "../description.ts";
import { formatFor, type Path } from "../format.ts";
import { type StartFile, startFile, startFiles } from "./shells.ts";

const NAMES = [
  "COPILOT_PROVIDER_TYPE",
  "COPILOT_PROVIDER_BASE_URL",
  "COPILOT_PROVIDER_API_KEY",
  "COPILOT_MODEL",
] as const;

/** In the start file of a shell. */
function settingsIn({ path, format }: StartFile): ClientSettings {
  const { at } = formatFor(format);
  /** The last assignment counts. */
  const place = (text: string, name: string): Path => {
    const all = at(text, [name]);
    return [name, Array.isArray(all) ? Math.max(0, all.length - 1) : 0];
  };
  return clientSettings({
    files: () => [path],
    format,
    fields: NAMES.map((name) => field([name, ANY_NAME], holds(name))),
    tokenIn: (text) => textAt(format, text, place(text, "COPILOT_PROVIDER_API_KEY")),
    merge(text, { origin, token, model }) {
      const values: Record<(typeof NAMES)[number], string> = {
        COPILOT_PROVIDER_TYPE: "openai",
        COPILOT_PROVIDER_BASE_URL: `${origin}/v1`,
        COPILOT_PROVIDER_API_KEY: token,
        COPILOT_MODEL: model ?? "",
      };
      return setAll(
        format,
        text,
        NAMES.map((name) => [place(text, name), values[name]]),
      );
    },
    notes: () => ["the variables are in new terminals only"],
  });
}

/** GitHub Copilot CLI. It takes these settings from the environment only, so they are in the start file of the shell. */
export const COPILOT_CLI: ClientDescription = describedClient("copilot-cli", () => [], {
  writes: (where) => [settingsIn(startFile(where))],
  mayWrite: (where) => startFiles(where).map(settingsIn),
  needsModel: true,
  tokenVariable: "COPILOT_PROVIDER_API_KEY",
  withVariable: () => "the terminal that is open has it, and Copilot CLI sends it to keybearer: refused",
});

function holds(name: string) {
  if (name === "COPILOT_PROVIDER_BASE_URL") return "address";
  return name === "COPILOT_PROVIDER_API_KEY" ? "key" : "other";
}
