import { options } from "preact";

/** Control characters and direction overrides. Tab and line break are allowed. */
const CONTROL_CHARS = /(?![\t\n])[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/**
 * Shows control characters as \u{…} in every text of the page. Model names come from clients and error texts from gateways;
 * neither may reverse the direction of our text.
 */
export function escapeControlChars(): void {
  options.vnode = (vnode: { props: unknown }) => {
    // A text is a separate node, whose props are the text.
    if (typeof vnode.props === "string") vnode.props = escaped(vnode.props);
    else escapeLabels(vnode.props);
  };
}

export function escaped(text: string): string {
  return text.replace(CONTROL_CHARS, (one) => `\\u{${(one.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Attributes that are read out, or shown as a tooltip. */
function escapeLabels(props: unknown): void {
  if (typeof props !== "object" || props === null) return;
  const named = props as Record<string, unknown>;
  for (const name of ["title", "aria-label"]) {
    const text = named[name];
    if (typeof text === "string") named[name] = escaped(text);
  }
}
