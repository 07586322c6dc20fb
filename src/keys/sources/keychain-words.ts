import { redactCredentials } from "../../core/secret.ts";
import { plain } from "../words.ts";

export const INSTEAD = "use file: or command: for this key";
export const NO_LIBRARY = `the keychain cannot be reached: @napi-rs/keyring is not installed for ${process.platform} on ${process.arch}; if keybearer was replaced meanwhile, start it again; else install it again with its optional packages, or ${INSTEAD}`;

/** The library has one code for all its errors, so its words are all there is to tell them apart by. */
const REASONS: readonly (readonly [RegExp, (again: string) => string])[] = [
  [/^library$/, () => NO_LIBRARY],
  [
    /dismissed|is ?locked|interaction is not allowed/i,
    (again) => `the keychain is locked, and its password was not given: unlock it, ${again}`,
  ],
  [
    /no result found|no default/i,
    () => `the keychain has no default collection to keep keys in: log in to the desktop once, or ${INSTEAD}`,
  ],
  [
    /not provided by any|ServiceUnknown|was not found|NameHasNoOwner/i,
    () =>
      `no program on the session bus keeps secrets (such as gnome-keyring or KeePassXC): start one, or ${INSTEAD}`,
  ],
  [
    /failed to connect|autolaunch|NoServer|disconnected|address|socket/i,
    () => `the session bus does not answer, and without it no keychain: log in again, or ${INSTEAD}`,
  ],
  [
    /matched by|ambiguous/i,
    () => "the keychain has more than one entry of this name: delete the wrong one in its own program",
  ],
  [
    /denied|cancel|auth|not permitted/i,
    (again) => `the keychain refused keybearer: allow it when you are asked, ${again}`,
  ],
  [/utf-?8|encoding/i, () => "the entry in the keychain is not text: that is no key"],
];

export function whyNot(words: string, operation: string): string {
  const known = REASONS.find(([shape]) => shape.test(words));
  if (known !== undefined) return known[1](againFor(operation));
  const [line = ""] = words.split(/[\r\n]/, 1);
  return `the keychain could not be asked (${plain(redactCredentials(line)).slice(0, 200)})`;
}

export function tooLate(limit: number, operation: string): string {
  return `the keychain did not answer within ${limit / 1000} s, as one that waits for its password: unlock it, ${againFor(operation)}`;
}

/** A daemon reads keys; whoever changes one has typed a command. */
function againFor(operation: string): string {
  return operation === "read"
    ? "then save config.yaml again, or send keybearer a SIGHUP"
    : "then run this again";
}
