import { join } from "node:path";
import {
  ANY_NAME,
  addressAt,
  type ClientDescription,
  clientSettings,
  described,
  describedClient,
  FOR_EVERY_USER,
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
import { mcpKeys } from "./mcp.ts";

function qwenFolder(where: Surroundings): string {
  return folderFrom(where.env.QWEN_HOME, join(where.home, ".qwen"), where);
}

const MODELS = ["modelProviders", "openai"];
const TOKEN = ["env", "KEYBEARER_TOKEN"];
const { set } = formatFor("jsonc");

/**
 * A model with an address and a variable of its own. Qwen Code takes both from there, whatever else the environment and .env
 * files set; the variables OPENAI_BASE_URL and OPENAI_API_KEY in its settings would be the last ones that it reads.
 */
const SETTINGS = clientSettings({
  files: (where) => [join(qwenFolder(where), "settings.json")],
  format: "jsonc",
  fields: [
    ...["id", "name", "envKey"].map((name) => field([...MODELS, ANY_NAME, name])),
    field([...MODELS, ANY_NAME, "baseUrl"], "address"),
    field(TOKEN, "key"),
    field(["security", "auth", "selectedType"]),
    field(["model", "name"]),
  ],
  tokenIn: (text) => textAt("jsonc", text, TOKEN),
  merge(text, { origin, token, model }) {
    const items = itemsAt("jsonc", text, MODELS);
    const own = items.findIndex(({ envKey }) => envKey === "KEYBEARER_TOKEN");
    const at = [...MODELS, own === -1 ? items.length : own];
    const settings: Wanted[] = [
      [TOKEN, token],
      [[...at, "id"], model ?? ""],
      [[...at, "name"], "keybearer"],
      [[...at, "baseUrl"], `${origin}/v1`],
      [[...at, "envKey"], "KEYBEARER_TOKEN"],
      [["security", "auth", "selectedType"], "openai"],
      [["model", "name"], model ?? ""],
    ];
    return setAll("jsonc", text, settings);
  },
  /** Qwen Code takes the first of two models with one name. */
  conflicts(text) {
    const chosen = textAt("jsonc", text, ["model", "name"]);
    const items = itemsAt("jsonc", text, MODELS);
    const own = items.findIndex(({ envKey }) => envKey === "KEYBEARER_TOKEN");
    const before = items.slice(0, own === -1 ? undefined : own).findIndex(({ id }) => id === chosen);
    if (chosen === null || before === -1) return [];
    const path = [...MODELS, before];
    return [
      {
        name: `${path.join(".")} (${chosen})`,
        problem: "it is another model with the same name, and Qwen Code takes the first one",
        remove: (current) => set(current, path, undefined),
      },
    ];
  },
});

function inSettings(where: Surroundings) {
  return {
    keys: [
      keyField(["security", "auth", "apiKey"], {
        address: ["security", "auth", "baseUrl"],
        elsewhere: {
          files: settingsFiles(where).map((path) => ({ path, format: "jsonc" })),
          address: (tree) => addressAt(tree, ["security", "auth", "baseUrl"]),
        },
        addressVariables: ["OPENAI_BASE_URL"],
      }),
      keyField(["modelProviders", ANY_NAME, ANY_NAME, "envKey"], {
        address: ["modelProviders", ANY_NAME, ANY_NAME, "baseUrl"],
        isName: true,
      }),
      ...mcpKeys(["mcpServers"]),
    ],
    variables: ["env"],
  };
}

/** The user's, then the projects'. */
function settingsFiles(where: Surroundings): readonly string[] {
  const folders = projectFolders(where).map((folder) => join(folder, ".qwen"));
  return [qwenFolder(where), ...folders].map((folder) => join(folder, "settings.json"));
}

/** Qwen Code. It merges several .env files; what the environment has already wins, then the first file that sets it. */
export const QWEN_CODE: ClientDescription = describedClient(
  "qwen-code",
  (where) => {
    const folder = qwenFolder(where);
    const projects = projectFolders(where);
    const env = { variables: [] };
    return [
      ...settingsFiles(where).map((path, index) =>
        described(path, "jsonc", { ...inSettings(where), isProject: index > 0 }),
      ),
      described("/etc/qwen-code/settings.json", "jsonc", {
        ...inSettings(where),
        byHand: FOR_EVERY_USER,
      }),
      described(join(where.home, ".env"), "dotenv", { ...env, isShared: true }),
      described(join(folder, ".env"), "dotenv", env),
      ...projects.flatMap((project) => [
        described(join(project, ".env"), "dotenv", {
          ...env,
          isShared: true,
          isProject: true,
          replacesEarlier: true,
        }),
        described(join(project, ".qwen", ".env"), "dotenv", {
          ...env,
          isProject: true,
          replacesEarlier: true,
        }),
      ]),
      described(join(folder, "oauth_creds.json"), "json", {
        logins: [["access_token"]],
        byHand: "it holds a login of Qwen Code, which stays as it is",
      }),
    ];
  },
  {
    writes: () => [SETTINGS],
    needsModel: true,
    withVariable: () => "Qwen Code uses it for its other models",
  },
);
