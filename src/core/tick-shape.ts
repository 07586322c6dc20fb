import { executionAsyncResource } from "node:async_hooks";

/**
 * Keeps process.nextTick fast. Every call makes an object, and Node's function is fast as long as V8 knows the shape of these
 * objects. A collection that finds none of them alive forgets the shape (Node 20), and from then on each call takes 1.1 µs instead of
 * 0.2, until the process ends. A small request makes about 30 calls, an event of a stream 4. So the daemon holds one of these objects.
 */
export class TickShape {
  /** Nothing reads it. null: until the next tick. */
  held: object | null = null;

  constructor() {
    process.nextTick(() => {
      this.held = executionAsyncResource();
    });
  }
}
