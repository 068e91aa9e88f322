// LangGraph without durability: what the library costs alone.
import { MemorySaver } from '@langchain/langgraph';
import { graph } from './langgraph.mjs';

export async function open(settings) {
  return { ...graph(settings, new MemorySaver()), close: async () => {} };
}
