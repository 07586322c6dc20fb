/** What a remembered browser signs to get a session. The origin is in it, so that what one address got is worthless at another. */
export function signedText(origin: string, challenge: string): string {
  return `keybearer dashboard session\n${origin}\n${challenge}`;
}
