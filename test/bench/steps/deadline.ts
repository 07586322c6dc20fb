/** Never expires. */
export class Deadline {
  start(): void {}

  touch(): void {}

  stop(): void {}
}
