// LangGraph: a graph of two nodes, model and tools, whose checkpointer saves every
// step before the next begins (durability "sync"); interrupt() holds a run.
import { randomUUID } from 'node:crypto';
import { AIMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { Command, END, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import { answer, args, callID, result, toolOf } from './scenario.mjs';

export function graph({ system, capability }, checkpointer) {
  const name = toolOf(capability);
  const model = async ({ messages }) => {
    // The system message is sent to the model every time and is not part of the state.
    const sent = [new SystemMessage(system), ...messages];
    if (ToolMessage.isInstance(sent.at(-1))) return { messages: [new AIMessage(answer)] };
    return { messages: [new AIMessage({ content: '', tool_calls: [{ id: callID, name, args, type: 'tool_call' }] })] };
  };
  const tools = async ({ messages }) => {
    const [call] = messages.at(-1).tool_calls;
    if (capability === 'approve' && interrupt({ name: call.name, args: call.args }) !== 'approve') {
      throw new Error('not approved');
    }
    return { messages: [new ToolMessage({ content: JSON.stringify(result), tool_call_id: call.id, name: call.name })] };
  };
  const app = new StateGraph(MessagesAnnotation)
    .addNode('model', model)
    .addNode('tools', tools)
    .addEdge(START, 'model')
    .addConditionalEdges('model', ({ messages }) => (messages.at(-1).tool_calls?.length ? 'tools' : END))
    .addEdge('tools', 'model')
    .compile({ checkpointer });
  const config = (id) => ({ configurable: { thread_id: id }, durability: 'sync' });

  return {
    async start(message) {
      const id = randomUUID();
      const state = await app.invoke({ messages: [new HumanMessage(message)] }, config(id));
      return { id, status: state.__interrupt__?.length ? 'held' : 'completed' };
    },
    async decide(id) {
      const state = await app.invoke(new Command({ resume: 'approve' }), config(id));
      if (state.messages.at(-1).content !== answer) throw new Error(`the model said ${state.messages.at(-1).content}`);
      return { status: 'completed' };
    },
  };
}
