/** As much of the browser's Storage as is needed. */
export interface Store {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
}

/** A text that outlives a reload. A browser that forbids storage holds it until then. */
export interface Stored {
  /** null: there is none. */
  read(): string | null;
  /** @param value null: it is removed */
  write(value: string | null): void;
}

export function stored(storage: () => Store, name: string): Stored {
  let held: string | null = null;
  try {
    held = storage().getItem(name);
  } catch {
    // There is none.
  }
  return {
    read: () => held,
    write(value) {
      held = value;
      try {
        if (value === null) storage().removeItem(name);
        else storage().setItem(name, value);
      } catch {
        // The page works without it.
      }
    },
  };
}
