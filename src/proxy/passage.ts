/** One try to bring a request to its gateway and the answer back. It tells the Call what happens. */
export interface Passage {
  /** It goes over a connection that served another request before. */
  readonly kept: boolean;
  /** The gateway took what there is of the request so far. */
  readonly taken: boolean;
  /** Goes on with the answer, after it was told to wait. */
  resume(): void;
  /** Ends it wherever it is; it tells nothing any more. */
  destroy(): void;
  /** The call is over and its answer was whole: the connection may serve another one. */
  finish(): void;
}
