// penstock-worker --plan MODEL --devices N: what a model needs on a kind of GPU and how fast it could be there,
// computed without one. Reads the model's settings only. Start-up; one thread.
#pragma once

namespace penstock::worker {

/// Whether the command line asks for a plan.
bool asks_for_plan(int argc, const char* const* argv);

/// Prints the plan to stdout, or one sentence to stderr. The exit code: 0; 1 for a model that cannot be planned or does
/// not fit; 2 for wrong options.
int run_plan(int argc, const char* const* argv);

}  // namespace penstock::worker
