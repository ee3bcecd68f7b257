"""The official OpenAI and Anthropic clients for Python against tests/e2e/scripted_router (PENSTOCK_URL): tools, thoughts."""

import json
import os
import unittest

import anthropic
import openai

URL = os.environ["PENSTOCK_URL"]
ASK = [{"role": "user", "content": "How is the weather?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
OPENAI_TOOLS = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": SCHEMA}}]
ANTHROPIC_TOOLS = [{"name": "weather", "description": "d", "input_schema": SCHEMA}]


class OpenAi(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=30)

    def tearDown(self):
        self.client.close()

    def test_every_format_streams_the_same_calls(self):
        for model in ["hermes", "llama", "mistral", "coder"]:
            with self.client.chat.completions.stream(model=model, messages=ASK, tools=OPENAI_TOOLS) as stream:
                kinds = [event.type for event in stream]
                final = stream.get_final_completion().choices[0]
            self.assertIn("tool_calls.function.arguments.done", kinds)
            self.assertEqual(final.finish_reason, "tool_calls")
            call = final.message.tool_calls[0]
            self.assertEqual(call.function.name, "weather")
            self.assertEqual(json.loads(call.function.arguments)["city"], "Köln")
            whole = self.client.chat.completions.create(model=model, messages=ASK, tools=OPENAI_TOOLS).choices[0]
            self.assertEqual(whole.message.content, final.message.content)
            self.assertEqual(
                [c.function.arguments for c in whole.message.tool_calls],
                [c.function.arguments for c in final.message.tool_calls],
            )

    def test_thoughts_and_several_calls(self):
        answer = self.client.chat.completions.create(model="hermes", messages=ASK, tools=OPENAI_TOOLS, n=2)
        for choice in answer.choices:
            self.assertEqual(choice.message.reasoning_content, "Hm.")
            self.assertEqual(choice.message.content, "I ask both.")
            self.assertEqual(len({call.id for call in choice.message.tool_calls}), 2)

    def test_an_answer_goes_back_with_what_the_tool_said(self):
        message = self.client.chat.completions.create(model="mistral", messages=ASK, tools=OPENAI_TOOLS).choices[0].message
        self.assertIsNone(message.content)
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"}
        again = self.client.chat.completions.create(
            model="mistral", messages=[*ASK, message.model_dump(exclude_none=True), result], tools=OPENAI_TOOLS
        )
        self.assertEqual(again.choices[0].finish_reason, "tool_calls")

    def test_text_has_no_calls(self):
        choice = self.client.chat.completions.create(model="text", messages=ASK, tools=OPENAI_TOOLS).choices[0]
        self.assertEqual(choice.message.content, "Hello there.")
        self.assertIsNone(choice.message.tool_calls)
        self.assertEqual(choice.finish_reason, "stop")

    def test_what_cannot_be_forced_is_refused(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="text", messages=ASK, tools=OPENAI_TOOLS, tool_choice="required")
        self.assertEqual(caught.exception.param, "tool_choice")


class Anthropic(unittest.TestCase):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, timeout=30)

    def tearDown(self):
        self.client.close()

    def check(self, message):
        self.assertEqual([block.type for block in message.content], ["thinking", "text", "tool_use", "tool_use"])
        self.assertEqual(message.content[0].thinking, "Hm.")
        self.assertEqual(message.content[1].text, "I ask both.")
        self.assertEqual(message.content[2].input, {"city": "Köln", "days": 2})
        self.assertEqual(message.content[3].input, {"city": "Bonn"})
        self.assertEqual(message.stop_reason, "tool_use")
        self.assertGreater(message.usage.input_tokens, 0)
        self.assertGreater(message.usage.output_tokens, 100)

    def test_stream_and_whole_answer_are_the_same(self):
        asked = {"model": "hermes", "max_tokens": 1000, "messages": ASK, "tools": ANTHROPIC_TOOLS, "system": "Be brief."}
        self.check(self.client.messages.create(**asked))
        with self.client.messages.stream(**asked) as stream:
            for _ in stream:
                pass
            self.check(stream.get_final_message())

    def test_text_stream(self):
        with self.client.messages.stream(model="text", max_tokens=100, messages=ASK) as stream:
            self.assertEqual("".join(stream.text_stream), "Hello there.")
            self.assertEqual(stream.get_final_message().stop_reason, "end_turn")

    def test_a_conversation_goes_on(self):
        first = self.client.messages.create(model="hermes", max_tokens=1000, messages=ASK, tools=ANTHROPIC_TOOLS)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "sun"}
            for block in first.content
            if block.type == "tool_use"
        ]
        messages = [
            *ASK,
            {"role": "assistant", "content": [block.model_dump() for block in first.content]},
            {"role": "user", "content": results},
        ]
        asked = {"model": "text", "messages": messages, "tools": ANTHROPIC_TOOLS}
        answer = self.client.messages.create(max_tokens=100, **asked)
        self.assertEqual(answer.content[0].text, "Hello there.")
        counted = self.client.messages.count_tokens(**asked).input_tokens
        self.assertEqual(counted, answer.usage.input_tokens + answer.usage.cache_read_input_tokens)

    def test_mistakes_are_its_errors(self):
        with self.assertRaises(anthropic.NotFoundError) as missing:
            self.client.messages.create(model="no-such", max_tokens=1, messages=ASK)
        self.assertEqual(missing.exception.body["error"]["type"], "not_found_error")
        self.assertTrue(missing.exception.request_id or missing.exception.response.headers["x-request-id"])
        with self.assertRaises(anthropic.BadRequestError):
            self.client.messages.create(model="text", max_tokens=0, messages=ASK)


if __name__ == "__main__":
    unittest.main()
