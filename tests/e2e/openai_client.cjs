// The official OpenAI client for Node against a running deployment (PENSTOCK_URL). Its .stream() helper is strict about
// roles, indices and finish reasons, which is why it is here beside the Python client.
'use strict';
const assert = require('node:assert/strict');
const { OpenAI } = require('openai');

async function main() {
  const client = new OpenAI({ baseURL: process.env.PENSTOCK_URL + '/v1', apiKey: 'none', maxRetries: 0, timeout: 120000 });
  const model = (await client.models.list()).data[0].id;
  const messages = [{ role: 'user', content: 'What is the capital of France?' }];

  const stream = client.chat.completions.stream({ model, messages, temperature: 0, max_tokens: 24, n: 2,
    stream_options: { include_usage: true } });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices.length, 2);
  for (const choice of final.choices) {
    assert.match(choice.message.content, /Paris/);
    assert.equal(choice.finish_reason, 'stop');
  }
  assert.ok(final.usage.completion_tokens > 0);

  const cancelled = await client.chat.completions.create({ model, messages, stream: true, max_tokens: 400 });
  for await (const chunk of cancelled) {
    assert.ok(chunk.id);
    cancelled.controller.abort();
    break;
  }

  await assert.rejects(client.chat.completions.create({ model, messages, top_p: 7 }), (error) => {
    assert.equal(error.status, 400);
    assert.equal(error.param, 'top_p');
    assert.ok(error.requestID);
    return true;
  });
  console.log('openai for Node: passed');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
