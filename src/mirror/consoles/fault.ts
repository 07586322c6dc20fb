/** Why a console cannot be read just now. */
export type FaultKind =
  /** Nobody is logged in, or no longer is: a person must. */
  | "login-needed"
  /** Logging in failed, and trying again would fail again. */
  | "login-refused"
  /** A secret is held until the owner approves where config.yaml newly sends it. */
  | "needs-trust"
  | "rate-limited"
  | "unreachable"
  | "slow"
  /** It answers, but not as a console: a web page, nothing at all, or a redirect. */
  | "not-a-console"
  /** It is a console, but not of this kind or of an unknown version. */
  | "other-shape"
  /** It answers with an error of its own. */
  | "failing"
  | "not-yet";

export class ConsoleFault extends Error {
  readonly kind: FaultKind;
  /** Seconds the console asked to wait. */
  readonly retryAfter: number | null;
  /** The account that it concerns, where there are several. */
  readonly account: string | null;

  /** The message is for people: what happened, without a secret, and without what to type next. */
  constructor(
    kind: FaultKind,
    message: string,
    retryAfter: number | null = null,
    account: string | null = null,
  ) {
    super(message);
    this.kind = kind;
    this.retryAfter = retryAfter;
    this.account = account;
  }
}
