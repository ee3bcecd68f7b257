// The official OpenAI client for Node against tests/e2e/scripted_router (PENSTOCK_URL). Its .stream() helper fails on calls
// without an id, a type or a name, and on choices without a role or a finish reason.
'use strict';
const assert = require('node:assert/strict');
const { OpenAI } = require('openai');

const tools = [{ type: 'function', function: { name: 'weather', parameters: { type: 'object',
  properties: { city: { type: 'string' }, days: { type: 'integer' } } } } }];

async function main() {
  const client = new OpenAI({ baseURL: process.env.PENSTOCK_URL + '/v1', apiKey: 'none', maxRetries: 0, timeout: 30000 });
  const messages = [{ role: 'user', content: 'How is the weather?' }];
  for (const model of ['hermes', 'llama', 'mistral', 'coder']) {
    const final = await client.chat.completions.stream({ model, messages, tools, n: 2 }).finalChatCompletion();
    assert.equal(final.choices.length, 2);
    for (const choice of final.choices) {
      assert.equal(choice.finish_reason, 'tool_calls', model);
      assert.equal(choice.message.tool_calls.length, model === 'hermes' ? 2 : 1, model);
      assert.equal(choice.message.tool_calls[0].type, 'function');
      assert.equal(JSON.parse(choice.message.tool_calls[0].function.arguments).city, 'Köln');
    }
  }
  // The helper calls the function and sends what it said; the scripted model asks again, so the number of turns ends it.
  let asked = 0;
  const runner = client.chat.completions.runTools({ model: 'llama', messages, tools: [{ type: 'function', function: {
    ...tools[0].function, parse: JSON.parse, function: ({ city }) => { asked += city === 'Köln' ? 1 : 0; return 'sun'; } } }] },
  { maxChatCompletions: 2 });
  await runner.done();
  assert.equal(asked, 2);
  const text = await client.chat.completions.stream({ model: 'text', messages, tools }).finalChatCompletion();
  assert.equal(text.choices[0].message.content, 'Hello there.');
  assert.ok(!text.choices[0].message.tool_calls);
  console.log('tools with openai for Node: passed');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
