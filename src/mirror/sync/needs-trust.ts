import { ConsoleFault } from "../consoles/console.ts";

/** A secret of the console is held until a person says that it may go where config.yaml newly sends it. */
export class NeedsTrust extends ConsoleFault {
  constructor(message: string) {
    super("login-needed", message);
  }
}
