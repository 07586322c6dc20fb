import { join } from "node:path";
import { asFields, asList } from "../../core/json.ts";
import {
  ANY_NAME,
  besideMoved,
  type ClientDescription,
  clientSettings,
  configFolder,
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
import type { Path } from "../format.ts";
import { providerAddress } from "../variables.ts";

function llmFolder(where: Surroundings): string {
  const usual =
    where.platform === "darwin" ? join(where.home, "Library", "Application Support") : configFolder(where);
  return folderFrom(where.env.LLM_USER_PATH, join(usual, "io.datasette.llm"), where);
}

const MODELS_FILE = "extra-openai-models.yaml";

const KEYS = clientSettings({
  files: (where) => [join(llmFolder(where), "keys.json")],
  format: "json",
  fields: [field([/^keybearer/], "key")],
  tokenIn: (text) => textAt("json", text, ["keybearer"]),
  merge: (text, { token, moved }) => setAll("json", text, [[[tokenName(moved)], token]]),
});

/** The name of the token in keys.json. Each key that was moved has one, because it may be another tool's. */
function tokenName(moved: Path | undefined): string {
  return moved === undefined ? "keybearer" : String(besideMoved(moved)[0]);
}

/** The token is in keys.json by then. Models that named a moved key name the token instead, and keep their ids. */
const MODELS = clientSettings({
  files: (where) => [join(llmFolder(where), MODELS_FILE)],
  format: "yaml",
  fields: [
    field([ANY_NAME, "model_id"]),
    field([ANY_NAME, "model_name"]),
    field([ANY_NAME, "api_key_name"]),
    field([ANY_NAME, "api_base"], "address"),
  ],
  tokenIn: () => null,
  merge(text, { origin, model, moved }) {
    const items = itemsAt("yaml", text, []);
    const address = `${origin}/v1`;
    const name = tokenName(moved);
    const repointed = items.flatMap(({ api_key_name, api_base }, at): Wanted[] => {
      const isMoved = moved !== undefined && [moved[0], name].includes(String(api_key_name));
      if (!isMoved || typeof api_base !== "string") return [];
      return [
        [[at, "api_base"], address],
        [[at, "api_key_name"], name],
      ];
    });
    if (repointed.length > 0) return setAll("yaml", text, repointed);
    const own = items.findIndex(({ model_id }) => model_id === `keybearer-${model}`);
    const at = own === -1 ? items.length : own;
    const settings: Wanted[] = [
      [[at, "model_id"], `keybearer-${model}`],
      [[at, "model_name"], model ?? ""],
      [[at, "api_base"], address],
      [[at, "api_key_name"], name],
    ];
    return setAll("yaml", text, settings);
  },
  notes(text) {
    const ids = itemsAt("yaml", text, []).flatMap(({ api_key_name, model_id }) =>
      api_key_name === "keybearer" && typeof model_id === "string" ? [model_id] : [],
    );
    return ids.length === 0
      ? []
      : [`llm keeps its default model; for keybearer: llm models default ${ids[0]}`];
  },
});

/** llm. A key in keys.json wins over the variable, and several models may name one key. */
export const LLM: ClientDescription = describedClient(
  "llm",
  (where) => {
    const models = join(llmFolder(where), MODELS_FILE);
    return [
      described(models, "yaml", { addresses: [[ANY_NAME, "api_base"]] }),
      described(join(llmFolder(where), "keys.json"), "json", {
        keys: [
          keyField([ANY_NAME], {
            builtIn: ([name]) => providerAddress(name),
            elsewhere: {
              files: [{ path: models, format: "yaml" }],
              address: (tree, [name]) => addressOf(tree, name),
            },
            addressVariables: ["OPENAI_BASE_URL"],
            move: "rewrite",
          }),
        ],
      }),
    ];
  },
  {
    writes: () => [KEYS, MODELS],
    needsModel: true,
    withVariable: () => "llm uses it for its own models",
  },
);

function addressOf(tree: unknown, name: unknown): { readonly address: string } | "none" | "ambiguous" {
  const found = asList(tree).flatMap((item) => {
    const { api_key_name, api_base } = asFields(item);
    return api_key_name === name && typeof api_base === "string" ? [api_base] : [];
  });
  const [address, ...others] = new Set(found);
  if (address === undefined) return "none";
  return others.length === 0 ? { address } : "ambiguous";
}
