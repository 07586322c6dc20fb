/** A change of a key cannot be made, or not now. The message is for people and has no secret in it. */
export class Refused extends Error {
  /** What the person can do; null: keybearer tries again by itself. */
  readonly next: string | null;

  constructor(message: string, next: string | null = null) {
    super(message);
    this.next = next;
  }
}
