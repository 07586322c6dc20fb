import { keyProblem, Secret as Real, SecretSet } from "../../../src/core/secret.ts";

export { keyProblem, SecretSet };

/** A key that is never searched for in an answer. */
export class Secret extends Real {
  override isIn(): boolean {
    return false;
  }

  override redactFrom(text: string): string {
    return text;
  }

  override partAtEndOf(): number {
    return 0;
  }
}
