import t from "tap";
import { TickShape } from "../../src/core/tick-shape.ts";

t.test("the object of a call of process.nextTick is held", async (t) => {
  const shape = new TickShape();
  t.equal(shape.held, null, "there is none before the next tick");
  await new Promise<void>((resolve) => process.nextTick(resolve));
  t.type(Reflect.get(shape.held ?? {}, "callback"), "function");
});
