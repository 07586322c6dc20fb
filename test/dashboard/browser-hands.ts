import type { Locator, Page } from "playwright-core";

/** How a person reaches what is on the page. */
export interface Hands {
  press(target: Locator): Promise<void>;
  fill(field: Locator, text: string): Promise<void>;
  /** The option with this value. */
  choose(field: Locator, value: string): Promise<void>;
}

export const MOUSE: Hands = {
  press: (target) => target.click(),
  fill: (field, text) => field.fill(text),
  choose: async (field, value) => void (await field.selectOption(value)),
};

/** More than any page has. */
const MOST_TABS = 300;

/** Nothing but the keyboard: Tab until the focus is there, and is shown. */
export function keyboardOf(page: Page): Hands {
  const { keyboard } = page;
  const tabTo = async (target: Locator) => {
    await target.waitFor();
    const focused = target.and(page.locator(":focus-visible"));
    for (let presses = 0; presses < MOST_TABS; presses += 1) {
      if ((await focused.count()) > 0) return;
      await keyboard.press("Tab");
    }
    throw new Error(`Tab does not lead to ${target}`);
  };
  return {
    async press(target) {
      await tabTo(target);
      await keyboard.press("Enter");
    },
    async fill(field, text) {
      await tabTo(field);
      await keyboard.press("Control+a");
      await keyboard.press("Delete");
      await keyboard.type(text);
    },
    async choose(field, value) {
      await tabTo(field);
      await keyboard.press("Home");
      for (let left = await field.locator("option").count(); left > 0; left -= 1) {
        if ((await field.inputValue()) === value) return;
        await keyboard.press("ArrowDown");
      }
      throw new Error(`the arrow keys do not lead to ${value}`);
    },
  };
}
