import type { Socket } from "node:net";

const CONTINUE = "HTTP/1.1 100";
const END_OF_HEAD = "\r\n\r\n";
/** Whoever says more in it than in the head of an answer is not waited for. */
const LONGEST = 16 * 1024;

/**
 * Some gateways say `100 Continue` though nobody asked whether to. A client has to put up with that (RFC 9110 section
 * 15.2), and undici ends the connection instead. So it is taken out of what undici reads.
 *
 * A client that is slow is waited for here too. undici could be told to pause instead, and then breaks the whole process
 * with an assertion when the gateway ends or resets the connection meanwhile.
 * @param line awaitsHead is true while the next bytes are the beginning of an answer; held while nothing may be read.
 */
export function skipContinue(socket: Socket, line: { awaitsHead: boolean; held: boolean }): void {
  const read = socket.read.bind(socket);
  let held: Buffer | null = null;
  socket.read = (size) => {
    if (line.held) return null;
    let bytes: Buffer | null = read(size);
    if (!line.awaitsHead || bytes === null) return bytes;
    if (held !== null) bytes = Buffer.concat([held, bytes]);
    held = null;
    while (bytes.length < LONGEST && mayContinue(bytes)) {
      const end = bytes.indexOf(END_OF_HEAD);
      if (end === -1) {
        held = bytes;
        return null;
      }
      bytes = bytes.subarray(end + END_OF_HEAD.length);
      if (bytes.length === 0) return null;
    }
    line.awaitsHead = false;
    return bytes;
  };
}

/** Of nearly every answer the first digit of its status tells that it is none. */
function mayContinue(bytes: Buffer): boolean {
  const digit = bytes[CONTINUE.length - 3];
  if (digit !== undefined && digit !== CONTINUE.charCodeAt(CONTINUE.length - 3)) return false;
  return CONTINUE.startsWith(bytes.toString("latin1", 0, CONTINUE.length));
}
