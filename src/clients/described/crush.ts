import { join } from "node:path";
import {
  ANY_NAME,
  addressAt,
  type ClientDescription,
  clientSettings,
  configFolder,
  dataFolder,
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
import { backgroundModel } from "../snippets.ts";
import { providerAddress } from "../variables.ts";
import { headerKey, mcpKeys } from "./mcp.ts";

function userFolder(where: Surroundings): string {
  return folderFrom(where.env.CRUSH_GLOBAL_CONFIG, join(configFolder(where), "crush"), where);
}

/** What was chosen in Crush itself. It wins over the user's file. */
function stateFile(where: Surroundings): string {
  const folder = folderFrom(where.env.CRUSH_GLOBAL_DATA, join(dataFolder(where), "crush"), where);
  return join(folder, "crush.json");
}

const OURS = ["providers", "keybearer"];
const SIZES = ["large", "small"] as const;
const CHOICE_FIELDS = SIZES.flatMap((size) => [
  field(["models", size, "provider"]),
  field(["models", size, "model"]),
]);
const { at } = formatFor("json");

const SETTINGS = clientSettings({
  files: (where) => [join(userFolder(where), "crush.json")],
  format: "json",
  fields: [
    field([...OURS, "type"]),
    field([...OURS, "base_url"], "address"),
    field([...OURS, "api_key"], "key"),
    field([...OURS, "models", ANY_NAME, "id"]),
    field([...OURS, "models", ANY_NAME, "name"]),
    ...CHOICE_FIELDS,
  ],
  tokenIn: (text) => textAt("json", text, [...OURS, "api_key"]),
  merge(text, target) {
    const { origin, token, model } = target;
    const names = modelNames(target);
    const listed = itemsAt("json", text, [...OURS, "models"]);
    const missing = [...new Set(Object.values(names))].filter(
      (name) => !listed.some(({ id }) => id === name),
    );
    const settings: Wanted[] = [
      // The type openai would use the Responses API.
      [[...OURS, "type"], "openai-compat"],
      [[...OURS, "base_url"], `${origin}/v1`],
      [[...OURS, "api_key"], token],
      ...missing.flatMap((name, index): Wanted[] => [
        [[...OURS, "models", listed.length + index, "id"], name],
        [[...OURS, "models", listed.length + index, "name"], name],
      ]),
      ...(model === null ? [] : choice(names)),
    ];
    return setAll("json", text, settings);
  },
});

const STATE = clientSettings({
  files: (where) => [stateFile(where)],
  format: "json",
  fields: CHOICE_FIELDS,
  tokenIn: () => null,
  /** Only where a model was chosen in Crush. */
  merge: (text, target) =>
    setAll(
      "json",
      text,
      choice(modelNames(target)).filter(([path]) => at(text, path) !== undefined),
    ),
});

type Chosen = Readonly<Record<(typeof SIZES)[number], string>>;

function modelNames(target: Parameters<typeof backgroundModel>[0]): Chosen {
  const large = target.model ?? "";
  return { large, small: backgroundModel(target) ?? large };
}

function choice(names: Chosen): Wanted[] {
  return SIZES.flatMap((size): Wanted[] => [
    [["models", size, "provider"], "keybearer"],
    [["models", size, "model"], names[size]],
  ]);
}

const EACH = ["providers", ANY_NAME];
function inConfig(where: Surroundings) {
  return {
    keys: [
      keyField([...EACH, "api_key"], {
        address: [...EACH, "base_url"],
        builtIn: ([name]) => providerAddress(name),
        // It merges all of its files.
        elsewhere: {
          files: [join(userFolder(where), "crush.json"), stateFile(where), ...projectFiles(where)].map(
            (path) => ({ path, format: "json" }),
          ),
          address: (tree, [name = ""]) => addressAt(tree, ["providers", name, "base_url"]),
        },
      }),
      headerKey([...EACH, "extra_headers"], { address: [...EACH, "base_url"] }),
      ...mcpKeys(["mcp"]),
    ],
    logins: [[...EACH, "oauth", "access_token"]],
  };
}

function projectFiles(where: Surroundings): readonly string[] {
  return projectFolders(where).flatMap((folder) => [join(folder, "crush.json"), join(folder, ".crush.json")]);
}

const SCRIPT =
  "it is a script that Crush runs: write the token after --api-key, and keybearer's address after --base-url";

/** Crush. */
export const CRUSH: ClientDescription = describedClient(
  "crush",
  (where) => [
    described(join(userFolder(where), "crush.json"), "json", inConfig(where)),
    described(join(userFolder(where), "crushrc"), "text", { byHand: SCRIPT }),
    described(stateFile(where), "json", inConfig(where)),
    ...projectFiles(where).map((path) => described(path, "json", { ...inConfig(where), isProject: true })),
    ...projectFolders(where).flatMap((project) =>
      ["crushrc", ".crushrc"].map((name) =>
        described(join(project, name), "text", { byHand: SCRIPT, isProject: true }),
      ),
    ),
  ],
  {
    writes: () => [SETTINGS, STATE],
    needsModel: true,
    withVariable: () => "Crush offers the models of that provider as well, past keybearer",
  },
);
