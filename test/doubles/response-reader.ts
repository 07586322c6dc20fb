/** Reads one response off a connection by its own framing, and skips informational ones in front of it. */
export class ResponseReader {
  /** Status line and headers in latin1, without the empty line. Empty until all of it came. */
  head = "";
  /** The last byte of the response came. */
  isWhole = false;
  /** Bytes that came behind the last byte of the response. */
  extraBytes = 0;
  readonly #isHead: boolean;
  readonly #body: Buffer[] = [];
  #pending: Buffer = Buffer.alloc(0);
  #state: "head" | "body" | "chunk size" | "chunk" | "chunk end" | "trailers" | "until close" = "head";
  /** Bytes of the body or of the chunk that have not come yet. */
  #left = 0;

  /** @param method of the request: the response to a HEAD has no body, whatever its headers say. */
  constructor(method = "GET") {
    this.#isHead = method === "HEAD";
  }

  get status(): number {
    return Number(this.head.split(" ", 2)[1] ?? 0);
  }

  /** Names and values in their order and case. */
  get headers(): [name: string, value: string][] {
    return headersIn(this.head);
  }

  /** The first value of a header; null: there is none. */
  header(name: string): string | null {
    return this.headers.find(([each]) => each.toLowerCase() === name)?.[1] ?? null;
  }

  /** The body without its framing, as far as it came. */
  body(): Buffer {
    return Buffer.concat(this.#body);
  }

  read(arrived: Buffer): void {
    this.#pending = this.#pending.length === 0 ? arrived : Buffer.concat([this.#pending, arrived]);
    let more = true;
    while (more && this.#pending.length > 0 && !this.isWhole) {
      more =
        this.#state === "head" || this.#state.startsWith("chunk ") || this.#state === "trailers"
          ? this.#readLine()
          : this.#readBytes();
    }
    if (!this.isWhole) return;
    this.extraBytes += this.#pending.length;
    this.#pending = Buffer.alloc(0);
  }

  /** The connection ended, which is how a response without a length ends. */
  end(): void {
    if (this.#state === "until close") this.isWhole = true;
  }

  #readBytes(): boolean {
    const length = this.#state === "until close" ? this.#pending.length : this.#left;
    const bytes = this.#take(Math.min(length, this.#pending.length));
    this.#body.push(bytes);
    if (this.#state === "until close") return false;
    this.#left -= bytes.length;
    if (this.#left > 0) return false;
    if (this.#state === "chunk") this.#state = "chunk end";
    else this.isWhole = true;
    return true;
  }

  #readLine(): boolean {
    const ending = this.#state === "head" ? "\r\n\r\n" : "\r\n";
    const at = this.#pending.indexOf(ending);
    if (at === -1) return false;
    const line = this.#take(at + ending.length).toString("latin1", 0, at);
    if (this.#state === "head") this.#readHead(line);
    else if (this.#state === "chunk size") {
      this.#left = Number.parseInt(line, 16);
      this.#state = this.#left === 0 ? "trailers" : "chunk";
    } else if (this.#state === "chunk end") this.#state = "chunk size";
    else if (line === "") this.isWhole = true;
    return true;
  }

  #readHead(head: string): void {
    this.head = head;
    const { status } = this;
    if (status >= 100 && status < 200 && status !== 101) return;
    const length = this.header("content-length");
    if (this.#isHead || status === 101 || status === 204 || status === 304) this.isWhole = true;
    else if (this.header("transfer-encoding") !== null) this.#state = "chunk size";
    else if (length === null) this.#state = "until close";
    else {
      this.#left = Number(length);
      this.#state = "body";
      this.isWhole = this.#left === 0;
    }
  }

  #take(length: number): Buffer {
    const bytes = this.#pending.subarray(0, length);
    this.#pending = this.#pending.subarray(length);
    return bytes;
  }
}

/** The headers of a head in latin1, in their order and case. Only the white space around a value is left out. */
export function headersIn(head: string): [name: string, value: string][] {
  return head
    .split("\r\n")
    .slice(1)
    .map((line) => [
      line.slice(0, line.indexOf(":")),
      line.slice(line.indexOf(":") + 1).replace(/^[ \t]+|[ \t]+$/g, ""),
    ]);
}
