import { randomBytes } from "node:crypto";
import { Secret } from "../core/secret.ts";
import { rounded } from "./billing.ts";

/** The one account holder of the sandbox. */
export interface Account {
  readonly email: string;
  /** New for each sandbox. */
  readonly password: Secret;
  /** In dollars. May end a little below 0: a request under way is not stopped. */
  readonly balance: number;
  setBalance(dollars: number): void;
  spend(dollars: number): void;
}

export function createAccount(balance: number): Account {
  let left = balance;
  return {
    email: "sandbox@keybearer.test",
    password: new Secret(randomBytes(18).toString("base64url")),
    get balance() {
      return left;
    },
    setBalance(dollars) {
      left = dollars;
    },
    spend(dollars) {
      left = rounded(left - dollars);
    },
  };
}
