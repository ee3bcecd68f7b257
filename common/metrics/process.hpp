// What this process uses, read from /proc. Any thread; a few tens of microseconds.
#pragma once

namespace penstock::metrics {

struct ProcessUse {
  double cpu_seconds = 0;
  double resident_bytes = 0;
  double open_files = 0;
  double threads = 0;
};
/// What can't be read stays zero.
ProcessUse read_process_use();

}  // namespace penstock::metrics
