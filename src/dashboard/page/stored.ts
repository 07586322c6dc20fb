/** As much of the browser's Storage as is needed. */
export interface Store {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
}

/** null: there is none, or the browser forbids storage. */
export function readStored(storage: () => Store, name: string): string | null {
  try {
    return storage().getItem(name);
  } catch {
    return null;
  }
}

/** A browser that forbids storage forgets it. @param value null: it is removed */
export function writeStored(storage: () => Store, name: string, value: string | null): void {
  try {
    if (value === null) storage().removeItem(name);
    else storage().setItem(name, value);
  } catch {
    // The page works without it.
  }
}
