import type { Known, ToolPlan } from "../../adopt/plan.ts";
import { chooseModels } from "../../clients/snippets.ts";
import { findClient } from "../../clients/table.ts";
import { createConfig } from "../../config/edit-file.ts";
import { freeTokenName, setToken, tokenEntry } from "../../config/edit-tools.ts";
import { readText } from "../../config/load.ts";
import { planTool } from "../../config/new-tool.ts";
import { gatewayFromUrl, parseConfig } from "../../config/parse.ts";
import { formatProblems } from "../../config/problems.ts";
import { DEFAULT_LISTEN, type Gateway } from "../../config/schema.ts";
import { askDaemon } from "../../control/client.ts";
import type { Status } from "../../control/status.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import type { Secret } from "../../core/secret.ts";
import { makeToken } from "../../core/token.ts";
import { probeKey, withOwnConnections } from "../../doctor/probe.ts";
import { freePlace, type Store, sourceText } from "../../keys/stored-keys.ts";
import { activeRevision, editConfig, waitUntilActive } from "../config-change.ts";
import { loadHere } from "../config-here.ts";
import { newConfig } from "../first-config.ts";
import { addGateway } from "../gateways.ts";
import { readOwn } from "../tools/key-source.ts";
import { describeHold, findHold } from "../tools/key-trust.ts";
import { storeNamedKey } from "../tools/store-key.ts";
import { fail, failNull, notice } from "../ui/messages.ts";
import { stdio } from "../ui/stdio.ts";
import { STATUS_MS } from "./search.ts";

/* Gives a key that was found a tool: tries it, stores it, and writes config.yaml. The client's files are not touched yet. */

/** What is in config.yaml, and where keybearer listens. */
export interface KnownHere extends Known {
  readonly origin: string;
}

/** null: config.yaml cannot be used, and its problems were printed. */
export async function readKnown(paths: Paths): Promise<KnownHere | null> {
  const { found, config, problems } = await loadHere(paths, { strict: false });
  if (config === null && found) return failNull(formatProblems(paths.config, problems), EXIT.badConfig);
  const keys = new Map<string, Secret>();
  for (const { name, key } of Object.values(config?.tools ?? {})) {
    const read = await readOwn(key, paths);
    if (read?.ok) keys.set(name, read.key);
  }
  const origin = await findOrigin(paths);
  return { gateways: config?.gateways ?? {}, tools: config?.tools ?? {}, keys, origin };
}

export interface Prepared {
  readonly plan: ToolPlan;
  readonly token: string;
  readonly model: string | null;
  readonly small: string | null;
}

/** null: the key stays where it is, and the reason was printed. */
export async function prepareTool(paths: Paths, plan: ToolPlan, store: Store): Promise<Prepared | null> {
  const { config } = await loadHere(paths, { strict: false });
  const gateway = config?.gateways[plan.gateway] ?? gatewayFromUrl(plan.gateway, plan.baseUrl);
  const models = await tryKey(paths, plan, gateway, store);
  if (models === null) return null;
  const token = makeToken();
  const before = await activeRevision(paths);
  const isSaved = plan.isNew
    ? await saveNewTool(paths, plan, gateway, token, store, models)
    : await saveToken(paths, plan, token);
  if (!isSaved) return null;
  // Its client may call as soon as its files are written.
  const effect = await waitUntilActive(
    paths,
    plan.name,
    (tool, revision) => tool !== undefined && revision > before,
  );
  if (effect.state === "not in force") {
    notice({ ...effect, problem: `${plan.name}: ${effect.problem}` });
    return null;
  }
  const client = findClient(plan.client);
  const chosen =
    client === null
      ? { model: null, small: null }
      : chooseModels(client, models, config?.tools[plan.name]?.model ?? null);
  return { plan, token, ...chosen };
}

/** The key goes only to the address that it was found beside. null: it was not accepted, or is not sent there. */
async function tryKey(
  paths: Paths,
  plan: ToolPlan,
  gateway: Gateway,
  store: Store,
): Promise<readonly string[] | null> {
  const { name: tool, key } = plan;
  const place = await freePlace({ store, tool, tools: {}, paths, key, env: stdio().env });
  const origins = [gateway.baseUrl, gateway.messagesUrl];
  const hold = await findHold(paths, { tool, source: place, origins, isStoredHere: true }, key);
  if (hold !== null) {
    notice(`${key.fingerprint} stays where it is: ${describeHold(hold)}`);
    return null;
  }
  notice(`asking ${gateway.baseUrl} for its models with key ${key.fingerprint} …`);
  const answer = await withOwnConnections(paths.keyCalls, (deps) => probeKey(deps, gateway, key));
  if (answer.ok) return answer.models;
  notice({ problem: `${key.fingerprint} stays where it is: ${answer.problem}`, next: answer.next });
  return null;
}

async function saveNewTool(
  paths: Paths,
  plan: ToolPlan,
  gateway: Gateway,
  token: string,
  store: Store,
  models: readonly string[],
): Promise<boolean> {
  const { name: tool, key, client } = plan;
  const { config } = await loadHere(paths, { strict: false });
  const place = await freePlace({ store, tool, tools: config?.tools ?? {}, paths, key, env: stdio().env });
  const source = sourceText(place, paths);
  const entry = tokenEntry(client, token);
  const origins = [gateway.baseUrl, gateway.messagesUrl];
  return storeNamedKey(paths, { tool, origins, key, models, place }, async () => {
    const { found } = await readText(paths.config);
    if (found) return addToConfig(paths, plan, source, entry);
    const budget = { limits: null, prices: [] };
    const made = await createConfig(
      paths.config,
      newConfig({ baseUrl: plan.baseUrl, tool, key: source, token: entry, budget }),
    );
    if (!made.ok) fail(made, EXIT.failed);
    return made.ok;
  });
}

async function addToConfig(
  paths: Paths,
  { name, gateway, baseUrl }: ToolPlan,
  key: string,
  token: ReturnType<typeof tokenEntry>,
): Promise<boolean> {
  const edited = await editConfig(paths, (text) => {
    const { config } = parseConfig(text, paths.home);
    const isThere = config !== null && Object.hasOwn(config.gateways, gateway);
    const withGateway = isThere ? { ok: true as const, text } : addGateway(text, gateway, baseUrl);
    if (!withGateway.ok) return withGateway;
    const planned = planTool(withGateway.text, paths.home, name, { gateway });
    return planned.ok ? planned.insert(withGateway.text, { key, token }) : planned;
  });
  return edited !== null;
}

/** Another token for a tool that has the key already. */
async function saveToken(paths: Paths, { name, client }: ToolPlan, token: string): Promise<boolean> {
  const edited = await editConfig(paths, (text) =>
    setToken(text, name, tokenEntry(freeTokenName(text, name, client), token), "add"),
  );
  return edited !== null;
}

/** http://localhost:5397; a daemon keeps its port until it is restarted, even if config.yaml has another one now. */
export async function findOrigin(paths: Paths): Promise<string> {
  const { config } = await loadHere(paths, { strict: false });
  const asked = await askDaemon<Status>(paths, "GET", "/status", undefined, STATUS_MS);
  const running = asked.ok ? /:(\d+)$/.exec(asked.value.listen[0] ?? "")?.[1] : undefined;
  const host = config?.listen.host === "::1" ? "[::1]" : (config?.listen.host ?? "localhost");
  return `http://${host}:${running ?? config?.listen.port ?? DEFAULT_LISTEN.port}`;
}
