// LangGraph with its SQLite saver, as it ships: write-ahead log, synchronous=NORMAL.
import { join } from 'node:path';
import { SqliteSaver } from '@langchain/langgraph-checkpoint-sqlite';
import { graph } from './langgraph.mjs';

export async function open(settings) {
  const saver = SqliteSaver.fromConnString(join(settings.dir, 'langgraph.db'));
  return { ...graph(settings, saver), close: async () => saver.db.close() };
}
