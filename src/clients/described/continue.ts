import { join } from "node:path";
import {
  ANY_NAME,
  type ClientDescription,
  clientSettings,
  described,
  describedClient,
  field,
  folderFrom,
  itemsAt,
  keyField,
  projectFolders,
  type Surroundings,
  setAll,
  textAt,
  type Wanted,
} from "../description.ts";
import { formatFor } from "../format.ts";
import { valueIn } from "../setting.ts";
import { providerAddress } from "../variables.ts";
import { headerKey, mcpKeys } from "./mcp.ts";

function continueFolder(where: Surroundings): string {
  return folderFrom(where.env.CONTINUE_GLOBAL_DIR, join(where.home, ".continue"), where);
}

function ownItem(text: string): number {
  return itemsAt("yaml", text, ["models"]).findIndex(({ name }) => name === "keybearer");
}

const { at } = formatFor("yaml");

const SETTINGS = clientSettings({
  files: (where) => [join(continueFolder(where), "config.yaml")],
  format: "yaml",
  fields: [
    field(["name"]),
    field(["version"]),
    field(["schema"]),
    ...["name", "provider", "model"].map((name) => field(["models", ANY_NAME, name])),
    field(["models", ANY_NAME, "apiBase"], "address"),
    field(["models", ANY_NAME, "apiKey"], "key"),
  ],
  tokenIn(text) {
    const own = ownItem(text);
    return own === -1 ? null : textAt("yaml", text, ["models", own, "apiKey"]);
  },
  merge(text, { origin, token, model }) {
    const own = ownItem(text);
    const item = ["models", own === -1 ? itemsAt("yaml", text, ["models"]).length : own];
    const header: Wanted[] = [
      [["name"], "keybearer"],
      [["version"], "1.0.0"],
      [["schema"], "v1"],
    ];
    const settings: Wanted[] = [
      [[...item, "name"], "keybearer"],
      [[...item, "provider"], "openai"],
      [[...item, "model"], model ?? ""],
      [[...item, "apiBase"], `${origin}/v1`],
      [[...item, "apiKey"], token],
    ];
    return setAll("yaml", text, [...header.filter(([path]) => at(text, path) === undefined), ...settings]);
  },
  notes: (text) =>
    itemsAt("yaml", text, ["models"]).length > 1
      ? ["Continue has other models, too: choose keybearer in its list of models"]
      : [],
});

/** A model names its provider beside the key. */
function modelAddress([index = 0]: readonly (string | number)[], tree: unknown): string | null {
  const provider = valueIn(tree, ["models", index, "provider"]);
  return typeof provider === "string" ? providerAddress(provider) : null;
}

const IN_CONFIG = {
  keys: [
    keyField(["models", ANY_NAME, "apiKey"], {
      address: ["models", ANY_NAME, "apiBase"],
      builtIn: modelAddress,
    }),
    headerKey(["models", ANY_NAME, "requestOptions", "headers"], {
      address: ["models", ANY_NAME, "apiBase"],
      builtIn: modelAddress,
    }),
    keyField(["tabAutocompleteModel", "apiKey"], { address: ["tabAutocompleteModel", "apiBase"] }),
    ...mcpKeys(["mcpServers"]),
  ],
};

/** Continue: its editor extensions and cn. Secrets that config.yaml names come from .env files, a project's first. */
export const CONTINUE: ClientDescription = describedClient(
  "continue",
  (where) => {
    const folder = continueFolder(where);
    return [
      described(join(folder, "config.json"), "jsonc", IN_CONFIG),
      described(join(folder, "config.yaml"), "yaml", IN_CONFIG),
      ...projectFolders(where).map((project) =>
        described(join(project, ".continue", "config.yaml"), "yaml", { ...IN_CONFIG, isProject: true }),
      ),
      described(join(folder, ".env"), "dotenv", { variables: [] }),
      ...projectFolders(where).flatMap((project) => [
        described(join(project, ".env"), "dotenv", { variables: [], isShared: true, isProject: true }),
        described(join(project, ".continue", ".env"), "dotenv", { variables: [], isProject: true }),
      ]),
    ];
  },
  {
    writes: () => [SETTINGS],
    needsModel: true,
    withVariable: () => "Continue uses it where its settings name it",
  },
);
