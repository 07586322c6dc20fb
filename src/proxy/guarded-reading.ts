import type { Socket } from "node:net";

/** As much of an answer as tells whether it is a hint. */
const BEGINNING = "HTTP/1.1 100".length;
const FIRST_DIGIT = "HTTP/1.1 ".length;
/** 101 is an answer, to a question that was never asked. */
const HINT = /^HTTP\/1\.[01] 1(?!01)\d\d$/;
const END_OF_HEAD = "\r\n\r\n";
/** Whoever says more in it than in the head of an answer is not waited for. */
const LONGEST = 16 * 1024;

/**
 * Looks after what undici reads from a connection.
 *
 * A gateway may say something before its answer, though nobody asked: hints, or `100 Continue`. A client has to put up with
 * that (RFC 9110 section 15.2), and undici ends the connection at the latter. Nobody wants either, so they are taken out.
 *
 * And a client that is slow is waited for here. undici could be told to pause instead, and then breaks the whole process
 * with an assertion when the gateway ends or resets the connection meanwhile.
 * @param line awaitsHead is true while the next bytes are the beginning of an answer; held while nothing may be read.
 */
export function guardReading(socket: Socket, line: { awaitsHead: boolean; held: boolean }): void {
  const read = socket.read.bind(socket);
  let begun: Buffer | null = null;
  socket.read = (size) => {
    if (line.held) return null;
    let bytes: Buffer | null = read(size);
    if (!line.awaitsHead || bytes === null) return bytes;
    if (begun !== null) bytes = Buffer.concat([begun, bytes]);
    begun = null;
    while (bytes.length < LONGEST && mayBeHint(bytes)) {
      const end = bytes.indexOf(END_OF_HEAD);
      if (end === -1) {
        begun = bytes;
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
function mayBeHint(bytes: Buffer): boolean {
  const digit = bytes[FIRST_DIGIT];
  if (digit !== undefined && digit !== 0x31) return false;
  const beginning = bytes.toString("latin1", 0, BEGINNING);
  return HINT.test(beginning + "HTTP/1.1 100".slice(beginning.length));
}
