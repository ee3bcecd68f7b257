"""The shapes of bench_engine through llama.cpp's C API: shape names line by line in, a JSON line for each out.

llama_peer.py MODEL THREADS. Only llama_decode is timed; drawing tokens is not, unlike in bench_engine.
"""
import json
import statistics
import sys
import time

import llama_cpp as llama
import numpy

DECODE_CONTEXT = 64  # as in shape_run.hpp
DECODE_STEPS = 16


@llama.llama_log_callback
def no_log(_level, _text, _data):
    pass


def new_context(model, threads, sequences, tokens):
    params = llama.llama_context_default_params()
    params.n_ctx = sequences * -(-tokens // 256) * 256
    params.n_batch = 2048
    params.n_ubatch = 512
    params.n_seq_max = sequences
    params.n_threads = params.n_threads_batch = threads
    params.no_perf = True
    context = llama.llama_init_from_model(model, params)
    if not context:
        sys.exit("llama_peer: no context")
    return context


def decode(context, batch, rows):
    """rows: (token, position, sequence, wants logits). Returns the seconds that it took."""
    batch.n_tokens = len(rows)
    for i, (token, position, sequence, wants) in enumerate(rows):
        batch.token[i] = token
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = wants
    start = time.perf_counter()
    if llama.llama_decode(context, batch) != 0:
        sys.exit("llama_peer: llama_decode failed")
    llama.llama_synchronize(context)
    return time.perf_counter() - start


def prompt(vocabulary, count, sequence):
    return [(1000 + 7919 * i + 104729 * sequence) % vocabulary for i in range(count)]


def run_prefill(model, threads, vocabulary, size):
    context = new_context(model, threads, 1, size + 1)
    batch = llama.llama_batch_init(2048, 0, 1)
    tokens = prompt(vocabulary, size, 0)
    seconds = 0.0
    for first in range(0, size, 2048):
        part = tokens[first : first + 2048]
        seconds += decode(context, batch, [(t, first + i, 0, first + i == size - 1) for i, t in enumerate(part)])
    llama.llama_batch_free(batch)
    llama.llama_free(context)
    return seconds


def run_decode(model, threads, vocabulary, size):
    context = new_context(model, threads, size, DECODE_CONTEXT + DECODE_STEPS + 1)
    batch = llama.llama_batch_init(2048, 0, 1)
    last = []
    for sequence in range(size):
        tokens = prompt(vocabulary, DECODE_CONTEXT, sequence)
        decode(context, batch, [(t, i, sequence, i == DECODE_CONTEXT - 1) for i, t in enumerate(tokens)])
        last.append(best(context, DECODE_CONTEXT - 1, vocabulary))
    times = []
    for step in range(DECODE_STEPS):
        rows = [(last[s], DECODE_CONTEXT + step, s, True) for s in range(size)]
        times.append(decode(context, batch, rows))
        last = [best(context, s, vocabulary) for s in range(size)]
    llama.llama_batch_free(batch)
    llama.llama_free(context)
    return statistics.median(times)


def best(context, row, vocabulary):
    logits = numpy.ctypeslib.as_array(llama.llama_get_logits_ith(context, row), shape=(vocabulary,))
    return int(logits.argmax())


def main():
    path, threads = sys.argv[1], int(sys.argv[2])
    llama.llama_log_set(no_log, None)
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    if not model:
        sys.exit(f"llama_peer: {path} does not load")
    vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    for line in sys.stdin:
        kind, size = line.strip().rsplit("-", 1)
        run = {"decode": run_decode, "prefill": run_prefill}[kind]
        rate = int(size) / run(model, threads, vocabulary, int(size))
        result = {"engine": "llama.cpp", "shape": line.strip(), "threads": threads, "tokens_per_second": rate}
        print(json.dumps(result), flush=True)


main()
