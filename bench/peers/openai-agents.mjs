// OpenAI Agents SDK: the runner runs the loop; its RunState is kept as text.
//
//	lookup    2 writes: before the loop, and its end
//	approve   SET at held, GET at the decision, SET at the end
import { randomUUID } from 'node:crypto';
import { Agent, Runner, RunState, setTracingDisabled, tool, Usage } from '@openai/agents';
import { connect } from './kept.mjs';
import { answer, args, callID, description, result, toolOf } from './scenario.mjs';

const model = (name) => ({
  async getResponse({ input }) {
    const usage = new Usage({ requests: 1, inputTokens: 1000, outputTokens: 20, totalTokens: 1020 });
    if (Array.isArray(input) && input.some((item) => item.type === 'function_call_result')) {
      return { usage, output: [{ type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: answer }] }] };
    }
    return { usage, output: [{ type: 'function_call', callId: callID, name, status: 'completed', arguments: JSON.stringify(args) }] };
  },
  async *getStreamedResponse() {
    throw new Error('nobody asked for a stream');
  },
});

export async function open({ redis, system, capability }) {
  setTracingDisabled(true);
  const kept = await connect(redis);
  const name = toolOf(capability);
  const agent = new Agent({
    name: 'bench',
    instructions: system,
    model: model(name),
    tools: [
      tool({
        name,
        description,
        strict: false,
        parameters: { type: 'object', properties: { order_id: { type: 'string' } }, required: ['order_id'], additionalProperties: true },
        needsApproval: capability === 'approve',
        execute: async () => result,
      }),
    ],
  });
  const runner = new Runner({ tracingDisabled: true });

  return {
    async start(message) {
      const id = randomUUID();
      if (capability !== 'approve') await kept.set(id, JSON.stringify({ id, status: 'running', system, message }));
      const turns = await runner.run(agent, message);
      await kept.set(id, turns.state.toString());
      return { id, status: turns.interruptions.length > 0 ? 'held' : 'completed' };
    },
    async decide(id) {
      const state = await RunState.fromString(agent, await kept.get(id));
      for (const asked of state.getInterruptions()) state.approve(asked);
      const turns = await runner.run(agent, state);
      if (turns.finalOutput !== answer) throw new Error(`the model said ${turns.finalOutput}`);
      await kept.set(id, turns.state.toString());
      return { status: 'completed' };
    },
    close: kept.close,
  };
}
