import { join } from "node:path";
import {
  ANY_NAME,
  addressAt,
  type ClientDescription,
  clientSettings,
  described,
  describedClient,
  field,
  folderFrom,
  itemsAt,
  keyField,
  type Surroundings,
  setAll,
  textAt,
  type Wanted,
} from "../description.ts";
import { providerAddress } from "../variables.ts";
import { headerKey } from "./mcp.ts";

function piFolder(where: Surroundings): string {
  return folderFrom(where.env.PI_CODING_AGENT_DIR, join(where.home, ".pi", "agent"), where);
}

const OURS = ["providers", "keybearer"];

const MODELS = clientSettings({
  files: (where) => [join(piFolder(where), "models.json")],
  format: "json",
  fields: [
    field([...OURS, "baseUrl"], "address"),
    field([...OURS, "api"]),
    field([...OURS, "apiKey"], "key"),
    field([...OURS, "models", ANY_NAME, "id"]),
  ],
  tokenIn: (text) => textAt("json", text, [...OURS, "apiKey"]),
  merge(text, { origin, token, model }) {
    const listed = itemsAt("json", text, [...OURS, "models"]);
    const settings: Wanted[] = [
      [[...OURS, "baseUrl"], `${origin}/v1`],
      [[...OURS, "api"], "openai-completions"],
      [[...OURS, "apiKey"], token],
    ];
    if (!listed.some(({ id }) => id === model))
      settings.push([[...OURS, "models", listed.length, "id"], model ?? ""]);
    return setAll("json", text, settings);
  },
});

const CHOICE = clientSettings({
  files: (where) => [join(piFolder(where), "settings.json")],
  format: "json",
  fields: [field(["defaultProvider"]), field(["defaultModel"])],
  tokenIn: () => null,
  merge: (text, { model }) =>
    setAll("json", text, [
      [["defaultProvider"], "keybearer"],
      [["defaultModel"], model ?? ""],
    ]),
});

const EACH = ["providers", ANY_NAME];

/** pi. A key that was typed into it (auth.json) wins over the one in models.json. */
export const PI: ClientDescription = describedClient(
  "pi",
  (where) => {
    const models = join(piFolder(where), "models.json");
    return [
      described(models, "json", {
        keys: [
          keyField([...EACH, "apiKey"], {
            address: [...EACH, "baseUrl"],
            builtIn: ([name]) => providerAddress(name),
          }),
          headerKey([...EACH, "headers"], { address: [...EACH, "baseUrl"] }),
        ],
      }),
      described(join(piFolder(where), "auth.json"), "json", {
        keys: [
          keyField([ANY_NAME, "key"], {
            builtIn: ([name]) => providerAddress(name),
            elsewhere: {
              files: [{ path: models, format: "json" }],
              address: (tree, [name = ""]) => addressAt(tree, ["providers", name, "baseUrl"]),
            },
            move: "rewrite",
            companions: [[ANY_NAME, "type"]],
          }),
        ],
        logins: [[ANY_NAME, "access"]],
      }),
    ];
  },
  {
    writes: () => [MODELS, CHOICE],
    needsModel: true,
    withVariable: () => "pi offers the models of that provider as well, past keybearer",
  },
);
