/** A request over the control socket that is refused: its sender's mistake, or something that cannot be done now. */
export class HttpError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}
