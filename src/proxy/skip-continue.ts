import type { Socket } from "node:net";

const STATUS_AT = "HTTP/1.1 ".length;
const ONE = 0x31;
const ZERO = 0x30;
const END_OF_HEAD = "\r\n\r\n";

/**
 * Some gateways say `100 Continue` though nobody asked whether to. A client has to put up with that (RFC 9110 section
 * 15.2), and undici ends the connection instead. So it is taken out of what undici reads.
 * @param line awaitsHead is true while the next bytes are the beginning of an answer.
 */
export function skipContinue(socket: Socket, line: { awaitsHead: boolean }): void {
  const read = socket.read.bind(socket);
  socket.read = (size) => {
    let bytes: Buffer | null = read(size);
    while (line.awaitsHead && bytes !== null) {
      const end = isContinue(bytes) ? bytes.indexOf(END_OF_HEAD) : -1;
      if (end === -1) line.awaitsHead = false;
      else bytes = end + END_OF_HEAD.length < bytes.length ? bytes.subarray(end + END_OF_HEAD.length) : null;
    }
    return bytes;
  };
}

function isContinue(bytes: Buffer): boolean {
  return bytes[STATUS_AT] === ONE && bytes[STATUS_AT + 1] === ZERO && bytes[STATUS_AT + 2] === ZERO;
}
