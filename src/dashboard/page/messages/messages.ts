import { EN } from "./en.ts";
import { ZH } from "./zh.ts";

/** Every text of the page has one; both languages have them all, or it does not compile. */
export type MessageId = keyof typeof EN;
export type Messages = Readonly<Record<MessageId, string>>;
export type Language = "en" | "zh-CN";
export type Values = Readonly<Record<string, string | number>>;

/**
 * A message with {name} filled in. "one|many" are its two forms, chosen by {n}: 1 takes the first. Texts that come
 * from outside go into values, never into a message.
 */
export type Translate = (id: MessageId, values?: Values) => string;

/** Traditional too: its readers read simplified more easily than English. */
export function chooseLanguage(preferred: readonly string[]): Language {
  for (const tag of preferred) {
    const [first] = tag.toLowerCase().split("-");
    if (first === "zh") return "zh-CN";
    if (first === "en") return "en";
  }
  return "en";
}

export function messagesOf(language: Language): Messages {
  return language === "zh-CN" ? ZH : EN;
}

/** The message of a name that comes from the daemon; null: this page has none. */
export function findMessage(id: string): MessageId | null {
  return Object.hasOwn(EN, id) ? (id as MessageId) : null;
}

export function createTranslate(language: Language): Translate {
  const messages = messagesOf(language);
  return (id, values = {}) => filled(formOf(messages[id], values), values);
}

export function formOf(message: string, { n }: Values): string {
  const [one = "", many] = message.split("|");
  return many === undefined || n === 1 || n === "1" ? one : many;
}

/** One pass, so that a value with braces in it is not filled in turn. */
export function filled(text: string, values: Values): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) =>
    Object.hasOwn(values, name) ? String(values[name]) : whole,
  );
}
