"""The official OpenAI client for Python against a running deployment (PENSTOCK_URL). Streams, cancels, errs."""

import json
import os
import unittest
import urllib.request

import openai

URL = os.environ["PENSTOCK_URL"]
ADMIN = os.environ["PENSTOCK_ADMIN_URL"]
FRANCE = [{"role": "user", "content": "What is the capital of France?"}]


def client(**options):
    return openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=120, **options)


def metric(name):
    total = 0.0
    with urllib.request.urlopen(ADMIN + "/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith((name + " ", name + "{")) or line.split(" ")[0] == name:
                total += float(line.rsplit(" ", 1)[1])
    return total


class OpenAiClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = client()
        cls.model = cls.client.models.list().data[0].id

    def chat(self, messages=None, **options):
        options.setdefault("temperature", 0)
        options.setdefault("max_tokens", 24)
        return self.client.chat.completions.create(model=self.model, messages=messages or FRANCE, **options)

    def test_whole_answer_is_sensible(self):
        answer = self.chat()
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_stream_equals_whole_answer(self):
        whole = self.chat().choices[0].message.content
        text, roles, finishes, usages = "", [], [], []
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            if chunk.usage:
                usages.append(chunk.usage)
                self.assertEqual(chunk.choices, [])
                continue
            delta = chunk.choices[0].delta
            if delta.role:
                roles.append(delta.role)
            text += delta.content or ""
            if chunk.choices[0].finish_reason:
                finishes.append(chunk.choices[0].finish_reason)
        self.assertEqual(text, whole)
        self.assertEqual(roles, ["assistant"])
        self.assertEqual(finishes, ["stop"])
        self.assertEqual(len(usages), 1)

    def test_several_choices_and_seed(self):
        first = self.chat(n=3, temperature=0.9, seed=7, max_tokens=12)
        second = self.chat(n=3, temperature=0.9, seed=7, max_tokens=12)
        self.assertEqual([c.index for c in first.choices], [0, 1, 2])
        self.assertEqual([c.message.content for c in first.choices], [c.message.content for c in second.choices])
        self.assertGreater(len({c.message.content for c in first.choices}), 1)

    def test_stop_string_never_leaks(self):
        answer = self.chat(stop=[" France"], max_tokens=24)
        self.assertNotIn("France", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_length_is_told(self):
        answer = self.chat(max_tokens=3)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 3)

    def test_logprobs(self):
        content = self.chat(logprobs=True, top_logprobs=3, max_tokens=4).choices[0].logprobs.content
        self.assertEqual(len(content), 4)
        for position in content:
            self.assertLessEqual(position.logprob, 0)
            self.assertEqual(len(position.top_logprobs), 3)
            self.assertEqual(position.token, position.top_logprobs[0].token)
            self.assertEqual(bytes(position.bytes).decode(errors="replace"), position.token)

    def test_completions_with_echo_and_logprobs(self):
        answer = self.client.completions.create(
            model=self.model, prompt="The capital of France is", max_tokens=2, temperature=0, echo=True, logprobs=1
        )
        choice = answer.choices[0]
        self.assertTrue(choice.text.startswith("The capital of France is"))
        self.assertIsNone(choice.logprobs.token_logprobs[0])
        self.assertEqual(len(choice.logprobs.tokens), len(choice.logprobs.token_logprobs))
        self.assertEqual("".join(choice.logprobs.tokens), choice.text)

    def test_second_request_with_the_same_prefix_reports_cached_tokens(self):
        story = " ".join(f"Fact {i}: the box numbered {i} holds {i * i} stones." for i in range(60))
        ask = lambda what: self.chat([{"role": "user", "content": story + what}], max_tokens=2).usage
        ask(" How many boxes are there?")
        usage = ask(" Which box is the heaviest?")
        self.assertGreater(usage.prompt_tokens, 600)
        self.assertGreater(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens // 2)

    def test_long_prompt_goes_over_two_workers(self):
        before = metric("penstock_router_split_total")
        story = " ".join(f"Line {i} of a long and unseen tale about {i} rivers." for i in range(80))
        self.assertTrue(self.chat([{"role": "user", "content": story}], max_tokens=4).choices[0].message.content)
        self.assertGreater(metric("penstock_router_split_total"), before)
        with urllib.request.urlopen(ADMIN + "/debug/routes", timeout=10) as answer:
            routes = json.dumps(json.load(answer))
        self.assertIn("prefill", routes)

    def test_tools_reach_the_template_without_harm(self):
        tool = {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}
        self.assertIsNotNone(self.chat(tools=[tool], max_tokens=2).choices[0].finish_reason)

    def test_mistakes_have_status_and_param(self):
        def status(error, call):
            with self.assertRaises(error) as caught:
                call()
            self.assertTrue(caught.exception.request_id)
            return caught.exception

        self.assertEqual(status(openai.BadRequestError, lambda: self.chat(temperature=-1)).param, "temperature")
        self.assertEqual(status(openai.BadRequestError, lambda: self.chat(max_tokens=-1)).param, "max_tokens")
        self.assertEqual(status(openai.BadRequestError, lambda: self.chat(n=10**9)).param, "n")
        self.assertEqual(status(openai.BadRequestError, lambda: self.chat([{"role": "user"}])).status_code, 400)
        missing = status(
            openai.NotFoundError, lambda: self.client.chat.completions.create(model="no-such", messages=FRANCE)
        )
        self.assertEqual(missing.code, "model_not_found")
        long = [{"role": "user", "content": "word " * 20000}]
        self.assertEqual(status(openai.BadRequestError, lambda: self.chat(long)).code, "context_length_exceeded")
        # After all of that it still answers.
        self.assertIn("Paris", self.chat().choices[0].message.content)

    def test_cancelled_streams_free_their_worker(self):
        aborted = metric('penstock_router_requests_total{outcome="cancelled"}')
        for _ in range(3):
            stream = self.chat([{"role": "user", "content": "Tell a very long story."}], stream=True, max_tokens=400)
            next(iter(stream))
            stream.close()
        self.assertIn("Paris", self.chat().choices[0].message.content)
        self.assertGreaterEqual(metric('penstock_router_requests_total{outcome="cancelled"}'), aborted + 3)


if __name__ == "__main__":
    unittest.main()
