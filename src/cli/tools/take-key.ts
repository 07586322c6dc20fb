import type { Config, Gateway } from "../../config/schema.ts";
import { advice } from "../../core/advice.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { keyProblem, Secret } from "../../core/secret.ts";
import { probeKey, withOwnConnections } from "../../doctor/probe.ts";
import { freePlace, type KeyPlace, type Store } from "../../keys/stored-keys.ts";
import { NO_MODELS_LISTED } from "../../proxy/key-health/cause.ts";
import { count } from "../../usage/reports/format.ts";
import { canceled, failNull, type Message, notice } from "../ui/messages.ts";
import { stdio } from "../ui/stdio.ts";
import { describeHold, findHold, foreignKey } from "./key-trust.ts";
import type { Inputs } from "./secret-inputs.ts";

/* A new key for a tool, for `init`, `tools add` and `tools rotate`: where it comes from, whether it may be sent, whether it works. */

interface KeyRequest {
  readonly paths: Paths;
  readonly tool: string;
  readonly gateway: Gateway;
  /** Their keys' places are taken. */
  readonly tools: Config["tools"];
  /** Where the key will be sent. */
  readonly origins: readonly string[];
  readonly inputs: Inputs;
  readonly store: Store;
  readonly probe: boolean;
}

export interface NewKey {
  readonly tool: string;
  /** Where it may be sent. */
  readonly origins: readonly string[];
  readonly key: Secret;
  /** null: the gateway was not asked, or did not accept the key. */
  readonly models: readonly string[] | null;
  /** Where it will be stored. */
  readonly place: KeyPlace;
}

/** Takes a key and tries it. "address": the person chose another base URL. null: there is none, and the reason was printed. */
export async function newKey(request: KeyRequest, canMove: true): Promise<NewKey | "address" | null>;
export async function newKey(request: KeyRequest): Promise<NewKey | null>;
export async function newKey(request: KeyRequest, canMove = false): Promise<NewKey | "address" | null> {
  const { paths, tool, tools, origins, inputs, store } = request;
  for (;;) {
    const text = await readKeyText(request);
    if (text === null) return canceled();
    const key = new Secret(text);
    let problem = findKeyProblem(text);
    if (problem === null) {
      const place = await freePlace({ store, tool, tools, paths, key, env: stdio().env });
      const hold = await findHold(paths, { tool, source: place, origins, isStoredHere: true }, key);
      if (hold === null) {
        const tried = await tryKey(request, key, canMove);
        if (tried === "again") continue;
        if (tried === null || tried === "address") return tried;
        // Another command may have taken the place while the gateway answered.
        const free = await freePlace({ store, tool, tools, paths, key, env: stdio().env });
        return { tool, origins, key, place: free, models: tried.models };
      }
      if (!hold.known) {
        notice({ problem: `not tried: ${describeHold(hold)}`, next: advice.trust(tool) });
        return { tool, origins, key, place, models: null };
      }
      problem = foreignKey(hold);
    }
    if (inputs.prompter === null) return failUnchanged(problem);
    notice(problem);
  }
}

interface Tried {
  /** null: not asked, or not accepted. */
  readonly models: readonly string[] | null;
}

/** Asks the gateway for its models. "again": the person will type another key. null: the reason was printed. */
export async function tryKey(
  { gateway, inputs: { prompter }, probe, paths }: Pick<KeyRequest, "gateway" | "inputs" | "probe" | "paths">,
  key: Secret,
  canMove: boolean,
): Promise<Tried | "again" | "address" | null> {
  if (!probe) return { models: null };
  notice(`asking ${gateway.baseUrl} for its models with key ${key.fingerprint} …`);
  const answer = await withOwnConnections(paths.keyCalls, (deps) => probeKey(deps, gateway, key));
  if (answer.ok) {
    const { models } = answer;
    if (models.length === 0)
      notice({ problem: `warning: ${NO_MODELS_LISTED.problem}`, next: NO_MODELS_LISTED.next });
    else notice(`the gateway accepts the key and lists ${count(models.length, "model")}`);
    return { models };
  }
  notice({ problem: answer.problem, next: answer.next });
  if (prompter === null)
    return failUnchanged({ problem: "the key does not work yet", next: "to continue anyway: --no-probe" });
  const move = canMove ? "a: another address, " : "";
  for (;;) {
    const said = await prompter.text(`k: type the key again, ${move}g: go on anyway, s: stop [k]: `);
    const choice = said?.trim().toLowerCase() ?? "s";
    if (choice === "" || choice === "k") return "again";
    if (choice === "g") return { models: null };
    if (choice === "a" && canMove) return "address";
    if (choice === "s") return canceled();
  }
}

/** Pasted text often has a space or a line break around it. */
async function readKeyText({ tool, gateway, inputs }: KeyRequest): Promise<string | null> {
  if (inputs.prompter === null) return (inputs.key ?? "").trim();
  const { host } = new URL(gateway.baseUrl);
  const typed = await inputs.prompter.secret(`key for ${tool} from the console of ${host} (not shown): `);
  return typed === null ? null : typed.trim();
}

function findKeyProblem(text: string): string | null {
  if (text.startsWith("kb_"))
    return "this is a token of keybearer's own, not a gateway's key: copy the key from the gateway's console";
  const problem = keyProblem(text);
  return problem === null ? null : `incomplete key: ${problem}. copy it whole from the gateway's console`;
}

export function failUnchanged(message: Message): null {
  return failNull([message, "nothing was changed"], EXIT.failed);
}
