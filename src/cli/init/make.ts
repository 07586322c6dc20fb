import { createConfig } from "../../config/edit-file.ts";
import { readText } from "../../config/load.ts";
import { gatewayFromUrl } from "../../config/parse.ts";
import { baseUrl } from "../../config/values.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { holdOf } from "../tools/hold.ts";
import { keepKey } from "../tools/keep-key.ts";
import { chooseStore, freePlace, type Store, sourceText } from "../tools/key-place.ts";
import { newKey } from "../tools/new-key.ts";
import { type Inputs, readInputs } from "../tools/stdin.ts";
import { newToken } from "../tools/token.ts";
import { failNull, notice } from "../ui/messages.ts";
import { newConfig } from "./new-config.ts";
import { tellNext } from "./next.ts";
import { askAddress, askTool, type InitOptions } from "./questions.ts";
import { resume } from "./resume.ts";

export async function init(options: InitOptions): Promise<void> {
  const paths = findPaths({ config: options.config });
  const { found } = await readText(paths.config);
  if (found) return resume(paths, options);
  const complete = options.gateway !== undefined && options.tool !== undefined;
  if (process.stdin.isTTY !== true && !(complete && options.keyStdin)) {
    const flags = "--gateway https://gateway.example.com/v1 --tool codex --key-stdin";
    failNull(
      `nobody is here to ask. name everything, and pipe the key in: keybearer init ${flags}`,
      EXIT.usage,
    );
    return;
  }
  const inputs = await readInputs({ key: true, token: false }, { key: true, token: false }, "");
  if (inputs === null) return;
  try {
    await make(paths, options, inputs);
  } finally {
    inputs.person?.close();
  }
}

async function make(paths: Paths, options: InitOptions, { person, key: given }: Inputs): Promise<void> {
  if (person !== null) notice(`this makes ${paths.config}. Ctrl-C stops, and leaves nothing behind`);
  let named = options.gateway;
  let tool = options.tool;
  let store: Store | null = null;
  for (;;) {
    const address = await askAddress(named, person);
    if (address === null) return;
    const name = await askTool(tool, person);
    if (name === null) return;
    const reading = baseUrl(address);
    if ("fault" in reading) return;
    const gateway = gatewayFromUrl("main", reading.value);
    store ??= await chooseStore(options, person);
    if (store === null) return;
    const placeOf = (key: Secret) => freePlace(store ?? "file", name, { tools: {} }, paths, key);
    const origins = [gateway.baseUrl, gateway.messagesUrl];
    const holdOn = async (key: Secret) =>
      holdOf(paths, { tool: name, source: await placeOf(key), origins }, key);
    const wish = { tool: name, gateway, person, given, probe: options.probe ?? true, holdOn };
    const found = await newKey(wish, true);
    if (found === null) return;
    if (found === "address") {
      named = undefined;
      tool = name;
      continue;
    }
    const place = await placeOf(found.key);
    const source = sourceText(place, paths);
    const token = newToken(name);
    const text = newConfig({ baseUrl: reading.value, tool: name, key: source, token: token.entry });
    const done = await keepKey(paths, place, found.key, async () => {
      const made = await createConfig(paths.config, text);
      if (!made.ok) failNull(made.reason, EXIT.failed);
      return made.ok;
    });
    if (!done) return;
    notice(`${paths.config} is written; the key of ${name} is ${source}`);
    process.stdout.write(`${token.made}\n`);
    notice("the line above is its token, shown this once; config.yaml holds its hash");
    return tellNext(paths, name);
  }
}
