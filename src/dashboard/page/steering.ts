import { options } from "preact";

/** Control characters and turns of direction; a line break and a tab belong to what is there to be copied. */
const STEERING = /(?![\t\n])[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/** The name of a model comes from whoever asks, and an error's words from the gateway: neither may turn ours around. */
export function steeringSpelledOut(text: string): string {
  return text.replace(STEERING, (one) => `\\u{${(one.codePointAt(0) ?? 0).toString(16)}}`);
}

/** For every text of the page, in whichever part of it. What is asked for by its name still has it as it is. */
export function spellOutSteering(): void {
  options.vnode = (vnode: { props: unknown }) => {
    // A text is a node of its own, whose properties are the text.
    if (typeof vnode.props === "string") vnode.props = steeringSpelledOut(vnode.props);
    else spellOutNames(vnode.props);
  };
}

/** What is read out, or shown under the pointer. */
function spellOutNames(props: unknown): void {
  if (typeof props !== "object" || props === null) return;
  const named = props as Record<string, unknown>;
  for (const name of ["title", "aria-label"]) {
    const text = named[name];
    if (typeof text === "string") named[name] = steeringSpelledOut(text);
  }
}
