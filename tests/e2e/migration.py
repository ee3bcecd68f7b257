"""Kills the decode worker that serves a stream: the client must see the same text as without the kill.

Ends only a process of the deployment under test, whose pid `up` wrote into PENSTOCK_LOCAL_STATE.
"""

import json
import os
import pathlib
import signal
import unittest
import urllib.request

import openai

URL = os.environ["PENSTOCK_URL"]
ADMIN = os.environ["PENSTOCK_ADMIN_URL"]
STATE = pathlib.Path(os.environ["PENSTOCK_LOCAL_STATE"])


class Migration(unittest.TestCase):
    def test_stream_survives_its_worker(self):
        client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=120)
        model = client.models.list().data[0].id
        request = dict(
            model=model,
            messages=[{"role": "user", "content": "Tell a story about a river and a stone."}],
            temperature=0,
            max_tokens=120,
        )
        whole = client.chat.completions.create(**request).choices[0].message.content

        text, killed = "", None
        stream = client.chat.completions.create(stream=True, **request)
        for index, chunk in enumerate(stream):
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            if index == 20:
                killed = self.worker_of(stream.response.headers["x-request-id"])
                pid = int((STATE / f"{killed}.pid").read_text().split()[0])
                os.kill(pid, signal.SIGKILL)
        self.assertIsNotNone(killed)
        self.assertEqual(text, whole)

    def worker_of(self, request_id):
        """The deployment's name of the worker that decodes the request, by the routing record and the control port."""
        with urllib.request.urlopen(ADMIN + "/debug/routes", timeout=10) as answer:
            records = json.load(answer)["decisions"]
        record = next(r for r in records if r["request_id"] == request_id)
        port = record["worker"].rsplit(":", 1)[1]
        for args in STATE.glob("*.args"):
            lines = args.read_text().splitlines()
            if "--control-port" in lines and lines[lines.index("--control-port") + 1] == port:
                return args.stem
        raise AssertionError(f"no worker with control port {port}")


if __name__ == "__main__":
    unittest.main()
