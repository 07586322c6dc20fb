import { useFrame } from "../frame.tsx";
import { filled, formOf, type MessageId, messagesOf, type Values } from "../messages/messages.ts";

/** A message whose `backticked` parts are what one types. Values are filled in after, so that they cannot add any. */
export function Text({ id, values = {} }: { readonly id: MessageId; readonly values?: Values }) {
  const { language } = useFrame();
  const parts = formOf(messagesOf(language)[id], values).split("`");
  return (
    <>
      {parts.map((part, at) => (at % 2 === 0 ? filled(part, values) : <code>{filled(part, values)}</code>))}
    </>
  );
}
