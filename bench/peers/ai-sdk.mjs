// AI SDK: generateText runs the model/tool loop; the program keeps the messages.
//
//	lookup    2 writes: before the loop, and its end
//	approve   SET at held, GET at the decision, SET at the end
import { randomUUID } from 'node:crypto';
import { generateText, jsonSchema, stepCountIs, tool } from 'ai';
import { connect } from './kept.mjs';
import { answer, args, callID, description, result, toolOf } from './scenario.mjs';

const usage = {
  inputTokens: { total: 1000, noCache: 1000, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 20, text: 20, reasoning: 0 },
};

const model = (toolName) => ({
  specificationVersion: 'v3',
  provider: 'mock',
  modelId: 'm',
  supportedUrls: {},
  async doGenerate({ prompt }) {
    if (prompt.some((message) => message.role === 'tool')) {
      return { content: [{ type: 'text', text: answer }], finishReason: { unified: 'stop', raw: 'stop' }, usage, warnings: [] };
    }
    const call = { type: 'tool-call', toolCallId: callID, toolName, input: JSON.stringify(args) };
    return { content: [call], finishReason: { unified: 'tool-calls', raw: 'tool_calls' }, usage, warnings: [] };
  },
});

export async function open({ redis, system, capability }) {
  const kept = await connect(redis);
  const name = toolOf(capability);
  const turns = (messages) =>
    generateText({
      model: model(name),
      system,
      messages,
      stopWhen: stepCountIs(10),
      tools: {
        [name]: tool({
          description,
          inputSchema: jsonSchema({ type: 'object', properties: { order_id: { type: 'string' } }, required: ['order_id'] }),
          needsApproval: capability === 'approve',
          execute: async () => result,
        }),
      },
    });
  const save = (id, status, messages, pending) => kept.set(id, JSON.stringify({ id, status, system, messages, pending }));

  return {
    async start(message) {
      const id = randomUUID();
      const messages = [{ role: 'user', content: message }];
      if (capability !== 'approve') await save(id, 'running', messages);
      const turn = await turns(messages);
      messages.push(...turn.response.messages);
      const asked = turn.content.find((part) => part.type === 'tool-approval-request');
      const status = asked ? 'held' : 'completed';
      await save(id, status, messages, asked?.approvalId);
      return { id, status };
    },
    async decide(id) {
      const { messages, pending } = JSON.parse(await kept.get(id));
      messages.push({ role: 'tool', content: [{ type: 'tool-approval-response', approvalId: pending, approved: true }] });
      const turn = await turns(messages);
      if (turn.text !== answer) throw new Error(`the model said ${turn.text}`);
      messages.push(...turn.response.messages);
      await save(id, 'completed', messages);
      return { status: 'completed' };
    },
    close: kept.close,
  };
}
