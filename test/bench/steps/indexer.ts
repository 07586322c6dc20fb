import { type IndexState, Indexer as Real } from "../../../src/usage/index/indexer.ts";

/** Does not follow the journal. */
export class Indexer extends Real {
  override noteAppend(): void {}

  override async catchUp(): Promise<IndexState> {
    return this.state();
  }
}
