import { isDeepStrictEqual } from "node:util";
import { besideMoved } from "../clients/description.ts";
import type { FoundKey, FoundSettings, Place } from "../clients/find.ts";
import { baseUrl } from "../config/values.ts";
import { advice } from "../core/advice.ts";
import type { Problem } from "../core/display.ts";
import { looksLikeCredential } from "../core/redact.ts";
import type { Secret } from "../core/secret.ts";

/* Sorts the keys that were found: which of them can be moved into keybearer, together with the address they are sent to. */

/** One key and the gateway it is sent to, with all the places where this key is beside this address. */
export interface Pair {
  readonly key: Secret;
  /** As config.yaml writes it: https://gateway.example.com/v1 */
  readonly baseUrl: string;
  readonly places: readonly FoundKey[];
}

/** A key that a person moves by hand. */
export interface ReportedKey {
  readonly place: FoundKey;
  readonly problem: Problem;
}

export interface Inventory {
  readonly pairs: readonly Pair[];
  readonly reported: readonly ReportedKey[];
}

/** @param isOurs whether an address is keybearer's own. */
export function makeInventory(found: FoundSettings, isOurs: (url: string) => boolean): Inventory {
  const pairs = new Map<string, { key: Secret; baseUrl: string; places: FoundKey[] }>();
  const reported: ReportedKey[] = [];
  const rewritten = new Set<string>();
  for (const place of found.keys) {
    const target = sentBesideToken(place, found) ?? findTarget(place, isOurs, rewritten);
    if (typeof target !== "string") {
      reported.push({ place, problem: target });
      continue;
    }
    const id = `${place.key.digest(target)} ${target}`;
    const pair = pairs.get(id);
    if (pair === undefined) pairs.set(id, { key: place.key, baseUrl: target, places: [place] });
    else pair.places.push(place);
  }
  return { pairs: [...pairs.values()], reported };
}

/**
 * With the keys that were half moved: a tool has the key already, the client uses its token, and only the key was not removed. So
 * nothing in the files says any more where it went.
 * @param gatewayOf the base URL of the tool that has the key; null: none has it
 */
export function withHalfMoved(
  { pairs, reported }: Inventory,
  { tokens }: FoundSettings,
  gatewayOf: (key: Secret) => string | null,
): Inventory {
  const halves = reported.flatMap(({ place }) => {
    const { file, path, field, key } = place;
    const isToken = (token: Place) =>
      token.file.path === file.path && isDeepStrictEqual(token.path, besideMoved(path));
    if (field?.move !== "rewrite" || place.problem !== null || !tokens.some(isToken)) return [];
    const baseUrl = gatewayOf(key);
    return baseUrl === null ? [] : [{ place, baseUrl }];
  });
  return {
    pairs: [...pairs, ...halves.map(({ place, baseUrl }) => ({ key: place.key, baseUrl, places: [place] }))],
    reported: reported.filter(({ place }) => !halves.some((half) => half.place === place)),
  };
}

/** The base URL of a key's gateway, or why the key cannot be moved. */
function findTarget(
  place: FoundKey,
  isOurs: (url: string) => boolean,
  rewritten: Set<string>,
): string | Problem {
  const { file, address, slot, references, problem } = place;
  if (file.byHand !== null) return { problem: "keybearer does not change this file", next: file.byHand };
  if (!address.known) {
    return { problem: address.problem, next: "write its address beside it, then run this again" };
  }
  const { url } = address;
  if (isOurs(url)) {
    const next = `remove the key there, and put a token in its place: ${advice.use("<tool>")}`;
    return { problem: "it is sent to keybearer, which refuses it", next };
  }
  if (problem !== null) return { problem, next: "correct that and run this again, or move the key by hand" };
  // The file that wins would keep the gateway's address.
  const { place: set } = address;
  if (set !== null && set.order > place.order && set.file.byHand !== null)
    return { problem: "its address is set in a file that keybearer does not change", next: set.file.byHand };
  if (place.field?.move === "rewrite" && file.isProject)
    return { problem: "its address is not in this file of a project", next: advice.use("<tool>") };
  if (place.field?.move === "by hand") {
    const next = place.field.byHand ?? "remove it there";
    return { problem: "keybearer does not move this key", next };
  }
  if (slot === null && references.length === 0 && place.field?.move !== "rewrite")
    return {
      problem: "this file cannot hold an address",
      next: `set the client up again: ${advice.use("<tool>")}`,
    };
  const base = baseUrlFor(url, address.base);
  if ("problem" in base) return base;
  if (place.field?.move === "rewrite") {
    // The settings that are written hold one token.
    const { client } = place;
    if (rewritten.has(client))
      return { problem: `another key of ${client} is moved first`, next: "move this one by hand" };
    rewritten.add(client);
  }
  return base.value;
}

/** A client that is set up already would send this key beside its token, and keybearer would refuse that. */
function sentBesideToken({ variable, client }: FoundKey, { tokens }: FoundSettings): Problem | null {
  if (variable !== "ANTHROPIC_API_KEY" || client === "env-file") return null;
  if (!tokens.some((token) => token.variable === "ANTHROPIC_AUTH_TOKEN" && token.client !== "env-file"))
    return null;
  return {
    problem: "Claude Code sends it beside its token, and keybearer refuses that",
    next: "remove it there",
  };
}

/** The address of a gateway in config.yaml, from the address that a client has. Clients differ in whether it ends in the version. */
export function baseUrlFor(url: string, base: "root" | "v1"): { readonly value: string } | Problem {
  if (looksLikeCredential(url))
    return { problem: "its address holds a key or a password", next: "write the address without it" };
  const bare = url.trim().replace(/\/+$/, "");
  const isGoogle = URL.canParse(bare) && new URL(bare).hostname === "generativelanguage.googleapis.com";
  const whole =
    base === "root" && !/\/v\d+[a-z0-9]*$/.test(bare) ? `${bare}/${isGoogle ? "v1beta" : "v1"}` : bare;
  const read = baseUrl(whole);
  if ("value" in read) return read;
  return { problem: `its address cannot be a gateway: ${read.problem}`, next: read.next ?? null };
}

/** What a client writes where its gateway's address was. */
export function ownAddress(origin: string, base: "root" | "v1"): string {
  return base === "root" ? origin : `${origin}/v1`;
}
