/** Why an answer did not come. */
export type FailedKind =
  /** Nothing answers at the port. */
  | "gone"
  /** The daemon does not know this session, or there is none. */
  | "session"
  /** It said no, in words. */
  | "refused";

export class Failed extends Error {
  readonly kind: FailedKind;
  readonly status: number;

  constructor(kind: FailedKind, message: string, status = 0) {
    super(message);
    this.kind = kind;
    this.status = status;
  }
}

export function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
