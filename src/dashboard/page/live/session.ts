/** The token that the one-time code was traded for. It ends with the tab: sessionStorage, and never a cookie. */
export interface Session {
  token(): string | null;
  keep(token: string): void;
  forget(): void;
}

/** As much of the browser's Storage as is needed. */
export interface Store {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
}

const NAME = "keybearer.session";

/** A browser that forbids storage still gets a session, which a reload ends. */
export function createSession(storage: () => Store): Session {
  let held: string | null = read(storage);
  return {
    token: () => held,
    keep(token) {
      held = token;
      attempt(() => storage().setItem(NAME, token));
    },
    forget() {
      held = null;
      attempt(() => storage().removeItem(NAME));
    },
  };
}

function read(storage: () => Store): string | null {
  let found: string | null = null;
  attempt(() => {
    found = storage().getItem(NAME);
  });
  return found;
}

function attempt(work: () => void): void {
  try {
    work();
  } catch {
    // Storage is switched off.
  }
}

/** The code of an address's fragment: #code=… */
export function codeOf(hash: string): string | null {
  const code = new URLSearchParams(hash.replace(/^#/, "")).get("code");
  return code === null || code === "" ? null : code;
}
