import { randomBytes } from "node:crypto";
import type { Config, Gateway, KeySource } from "../../config/schema.ts";
import { advice } from "../../core/advice.ts";
import { systemClock } from "../../core/clock.ts";
import { EXIT } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { keyFault, Secret } from "../../core/secret.ts";
import { wantedKeys } from "../../daemon/reload.ts";
import { servedBefore } from "../../daemon/served-before.ts";
import { probeKey, withOwnConnections } from "../../doctor/probe.ts";
import { freePlace, type Store } from "../../keys/places.ts";
import type { KeyPlace } from "../../keys/store.ts";
import { Trust, type UntrustedChange } from "../../keys/trust.ts";
import { NO_MODELS_LISTED } from "../../proxy/key-health/cause.ts";
import { count } from "../../usage/reports/format.ts";
import { canceled, failNull, notice } from "../ui/messages.ts";
import { createPrompter, type Prompter } from "../ui/prompts.ts";
import { stdio } from "../ui/stdio.ts";

/* A new key for a tool, for `init`, `tools add` and `tools rotate`: where it comes from, whether it may be sent, whether it works. */

/** No key or token is longer. A program that writes without end must not fill the memory. */
const MAX_CHARACTERS = 64 * 1024;

interface Secrets {
  readonly key: boolean;
  readonly token: boolean;
}

/** A person to ask, or what was piped in instead. */
export interface Inputs {
  readonly prompter: Prompter | null;
  readonly key: string | null;
  readonly token: string | null;
}

/**
 * Secrets come from a person or from stdin, never from arguments, which every user of the machine can list. Of two, the key is
 * the first line and the token the second. null: there is nothing to read, and that was printed.
 */
export async function readInputs(needed: Secrets, flags: Secrets, next: string): Promise<Inputs | null> {
  const nothing = { prompter: null, key: null, token: null };
  // With --key-stdin, too: a key that is typed at a terminal must not be shown.
  if (stdio().stdin.isTTY === true) return { ...nothing, prompter: createPrompter() };
  if (needed.key && !flags.key)
    return failNull(`there is no terminal to type the key at. pipe it in: ${next}`, EXIT.usage);
  if (!(needed.key && flags.key) && !flags.token) return nothing;
  const text = await readStdin();
  if (!flags.token) return { ...nothing, key: text };
  if (!needed.key) return { ...nothing, token: text.trim() };
  const [key = "", token = "", ...more] = text.trim().split(/\r?\n/);
  if (token !== "" && more.length === 0) return { ...nothing, key, token: token.trim() };
  return failNull(
    "with --key-stdin and --token-stdin, the key is the first line and the token the second",
    EXIT.usage,
  );
}

async function readStdin(): Promise<string> {
  let text = "";
  for await (const chunk of stdio().stdin.setEncoding("utf8")) {
    text += String(chunk);
    if (text.length > MAX_CHARACTERS) break;
  }
  return text;
}

export interface KeyRequest {
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
  /** Where it is to be stored. */
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
    let fault = keyTextFault(text);
    if (fault === null) {
      const place = await freePlace({ store, tool, tools, paths, key, env: stdio().env });
      const hold = await holdOf(paths, { tool, source: place, origins, isStoredHere: true }, key);
      if (hold === null) {
        const tried = await tryKey(request, key, canMove);
        if (tried === "again") continue;
        if (tried === null || tried === "address") return tried;
        // Another command may have taken the place while the gateway answered.
        const free = await freePlace({ store, tool, tools, paths, key, env: stdio().env });
        return { tool, origins, key, place: free, models: tried.models };
      }
      if (!hold.known) {
        notice(`not tried: ${describeHold(hold)} → ${advice.trust(tool)}`);
        return { tool, origins, key, place, models: null };
      }
      fault = foreignKey(hold);
    }
    if (inputs.prompter === null) return failUnchanged(fault);
    notice(fault);
  }
}

export interface Tried {
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
    if (models.length === 0) notice(`warning: ${NO_MODELS_LISTED.problem} → ${NO_MODELS_LISTED.next}`);
    else notice(`the gateway accepts the key and lists ${count(models.length, "model")}`);
    return { models };
  }
  notice(`${answer.why} → ${answer.next}`);
  if (prompter === null) return failUnchanged("the key does not work yet. to continue anyway: --no-probe");
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

function keyTextFault(text: string): string | null {
  if (text.startsWith("kb_"))
    return "this is a token of keybearer's own, not a gateway's key: copy the key from the gateway's console";
  const fault = keyFault(text);
  return fault === null ? null : `incomplete key: ${fault}. copy it whole from the gateway's console`;
}

export function failUnchanged(reason: string): null {
  return failNull(`${reason}\nnothing was changed`, EXIT.failed);
}

/** The daemon would hold this key until it is trusted, so no command may send it either. */
export interface Hold extends UntrustedChange {
  /** The key itself was used at another gateway before. Otherwise its tool or its source was. */
  readonly known: boolean;
}

export interface KeyUse {
  readonly tool: string;
  readonly source: KeySource;
  readonly origins: readonly string[];
  /** The command itself stores the key there. Default false. */
  readonly isStoredHere?: boolean;
}

/** Asked before a key is sent. null: it may be sent to these origins. */
export async function holdOf(
  paths: Paths,
  { tool, source, origins, isStoredHere = false }: KeyUse,
  key: Secret,
): Promise<Hold | null> {
  const { trust, isLost } = readPins(paths);
  const subject = { name: tool, source, origins, home: paths.own };
  if (isStoredHere) trust.claim(subject);
  const held = trust.judgeSource(subject) ?? trust.judgeKey(subject, key);
  if (held === null) return null;
  // Without a tool and a source, only the pin of the key itself can hold it.
  const itself = trust.judgeKey({ ...subject, name: "", source: { kind: "literal", secret: key } }, key);
  return { ...held, known: !isLost && itself !== null };
}

/**
 * The first of these tools that was used at another address before, as a message. A program that edited base_url must not get
 * the next key, so this is checked before a person is asked for one. null: no tool was moved.
 */
export async function movedTool(
  paths: Paths,
  config: Config,
  isMeant: (name: string) => boolean,
): Promise<string | null> {
  const { trust, isLost } = readPins(paths);
  // Without pins every key is held, wherever it goes.
  if (isLost) return null;
  for (const needed of wantedKeys(config, paths)) {
    if (!Object.hasOwn(config.tools, needed.name) || !isMeant(needed.name)) continue;
    // With a random key, only the tool's name can be known.
    const secret = new Secret(randomBytes(24).toString("hex"));
    const held = trust.judgeKey({ ...needed, source: { kind: "literal", secret } }, secret);
    if (held !== null)
      return (
        `${needed.name} was used at ${held.from} before, and config.yaml sends it to ${held.to} now. ` +
        `confirm that before it gets a key → ${advice.trust(needed.name)}, or put base_url back\nnothing was changed`
      );
  }
  return null;
}

export function originsFor(config: Config, tool: string, paths: Paths): readonly string[] {
  return wantedKeys(config, paths).find(({ name }) => name === tool)?.origins ?? [];
}

export function describeHold({ what, from, to }: UntrustedChange): string {
  return `${what} waits for your confirmation and was not sent: it was for ${from}, and is now for ${to}`;
}

export function foreignKey(hold: Hold): string {
  return `${describeHold(hold)}. each gateway has keys of its own: make one in its console`;
}

/** Only read: the daemon owns the file and adds the pins. */
function readPins(paths: Paths): { readonly trust: Trust; readonly isLost: boolean } {
  const trust = new Trust({
    file: paths.trust,
    clock: systemClock,
    ranBefore: () => servedBefore(paths),
  });
  const { problem } = trust.load();
  return { trust, isLost: problem !== null };
}
