import type { Gateway } from "../../config/schema.ts";
import { EXIT } from "../../core/errors.ts";
import { findPaths } from "../../core/paths.ts";
import { keyFault, Secret } from "../../core/secret.ts";
import { NO_MODELS } from "../../doctor/key-messages.ts";
import { probeKey, withOwnConnections } from "../../doctor/probe.ts";
import { count } from "../../usage/reports/format.ts";
import { canceled, failNull, notice } from "../ui/messages.ts";
import { createPrompter, type Prompter } from "../ui/prompts.ts";
import { type Hold, holdInWords } from "./hold.ts";

/** No key and no token is longer; a program that writes for ever must not fill the memory. */
const MOST_CHARACTERS = 64 * 1024;

export interface Wanted {
  readonly key: boolean;
  readonly token: boolean;
}

/** Who is asked, or what was piped in instead. */
export interface Inputs {
  readonly person: Prompter | null;
  readonly key: string | null;
  readonly token: string | null;
}

/**
 * Secrets come from a person or over stdin, never as arguments, which every user of the machine can list. Of two, the
 * key is the first line and the token the second. null: told why there is nothing to read.
 */
export async function readInputs(wanted: Wanted, flags: Wanted, next: string): Promise<Inputs | null> {
  const none = { person: null, key: null, token: null };
  // A key that is typed after --key-stdin must not be shown either: so a terminal is always asked.
  if (process.stdin.isTTY === true) return { ...none, person: createPrompter() };
  if (wanted.key && !flags.key)
    return failNull(`nobody is here to type the key. pipe it in: ${next}`, EXIT.usage);
  if (!(wanted.key && flags.key) && !flags.token) return none;
  const text = await allOf(process.stdin);
  if (!flags.token) return { ...none, key: text };
  if (!wanted.key) return { ...none, token: text.trim() };
  const [key = "", token = "", ...more] = text.trim().split(/\r?\n/);
  if (token !== "" && more.length === 0) return { ...none, key, token: token.trim() };
  return failNull(
    "with --key-stdin and --token-stdin, the key is the first line and the token the second",
    EXIT.usage,
  );
}

async function allOf(input: NodeJS.ReadStream): Promise<string> {
  let text = "";
  for await (const chunk of input.setEncoding("utf8")) {
    text += String(chunk);
    if (text.length > MOST_CHARACTERS) break;
  }
  return text;
}

export interface KeyWish {
  readonly tool: string;
  readonly gateway: Gateway;
  /** Somebody who can be asked; null: the key comes from `given`. */
  readonly person: Prompter | null;
  readonly given: string | null;
  readonly probe: boolean;
  /** Whether trust would hold this key; null: it may be sent to the gateway. */
  readonly holdOn: (key: Secret) => Promise<Hold | null>;
}

export interface NewKey {
  readonly key: Secret;
  /** null: the gateway was not asked, or did not take the key. */
  readonly models: readonly string[] | null;
}

/** Gets a key and tries it. "address": the person wants to name another one. null: told why there is none. */
export async function newKey(wish: KeyWish, mayMove: true): Promise<NewKey | "address" | null>;
export async function newKey(wish: KeyWish): Promise<NewKey | null>;
export async function newKey(wish: KeyWish, mayMove = false): Promise<NewKey | "address" | null> {
  for (;;) {
    const text = await keyText(wish);
    if (text === null) return canceled();
    const key = new Secret(text);
    const held = faultOf(text) === null ? await wish.holdOn(key) : null;
    const fault = held?.known ? strange(held) : faultOf(text);
    if (fault !== null) {
      if (wish.person === null) return failed(fault);
      notice(fault);
      continue;
    }
    if (held !== null) {
      notice(`not tried: ${holdInWords(held)} → keybearer trust ${wish.tool}`);
      return { key, models: null };
    }
    const outcome = await tried(wish, key, mayMove);
    if (outcome !== "again") return outcome;
  }
}

export async function tried(
  { gateway, person, probe }: Pick<KeyWish, "gateway" | "person" | "probe">,
  key: Secret,
  mayMove: boolean,
): Promise<NewKey | "again" | "address" | null> {
  if (!probe) return { key, models: null };
  notice(`asking ${gateway.baseUrl} for its models with key ${key.fingerprint} …`);
  const answer = await withOwnConnections(findPaths().keyCalls, (deps) => probeKey(deps, gateway, key));
  if (answer.ok) {
    const { length } = answer.models;
    notice(
      length === 0
        ? `warning: ${NO_MODELS.what} → ${NO_MODELS.next}`
        : `the gateway accepts the key and lists ${count(length, "model")}`,
    );
    return { key, models: answer.models };
  }
  notice(`${answer.why} → ${answer.next}`);
  if (person === null) return failed("the key does not work yet. to go on all the same: --no-probe");
  const move = mayMove ? "a: another address, " : "";
  for (;;) {
    const said = await person.text(`k: type the key again, ${move}g: go on all the same, s: stop [k]: `);
    switch (said?.trim().toLowerCase()) {
      case "":
      case "k":
        return "again";
      case "g":
        return { key, models: null };
      case "a":
        if (mayMove) return "address";
        break;
      case "s":
      case undefined:
        return canceled();
    }
  }
}

/** What was pasted often has a space or a line break around it; one inside it is a fault. */
async function keyText({ tool, gateway, person, given }: KeyWish): Promise<string | null> {
  if (person === null) return (given ?? "").trim();
  const { host } = new URL(gateway.baseUrl);
  const typed = await person.secret(`key for ${tool} from the console of ${host} (not shown): `);
  return typed === null ? null : typed.trim();
}

function faultOf(text: string): string | null {
  if (text.startsWith("kb_"))
    return "this is a token of keybearer's own, not a gateway's key: copy the key from the gateway's console";
  const fault = keyFault(text);
  return fault === null ? null : `incomplete key: ${fault}. copy it whole from the gateway's console`;
}

export function strange(held: Hold): string {
  return `${holdInWords(held)}. each gateway has keys of its own: make one in its console`;
}

export function failed(reason: string): null {
  return failNull(`${reason}\nnothing was changed`, EXIT.failed);
}
