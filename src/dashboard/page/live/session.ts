import { readStored, type Store, writeStored } from "../stored.ts";

/** The token that the one-time code was traded for. It ends with the tab: sessionStorage, and never a cookie. */
export interface Session {
  token(): string | null;
  keep(token: string): void;
  forget(): void;
}

const NAME = "keybearer.session";

/** A browser that forbids storage still gets a session, which a reload ends. */
export function createSession(storage: () => Store): Session {
  let held = readStored(storage, NAME);
  const hold = (token: string | null) => {
    held = token;
    writeStored(storage, NAME, token);
  };
  return { token: () => held, keep: hold, forget: () => hold(null) };
}

/** The code of an address's fragment: #code=… */
export function codeOf(hash: string): string | null {
  const code = new URLSearchParams(hash.replace(/^#/, "")).get("code");
  return code === null || code === "" ? null : code;
}
