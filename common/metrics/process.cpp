#include "common/metrics/process.hpp"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace penstock::metrics {
namespace {

double count_entries(const char* folder) {
  double count = 0;
  if (DIR* open = opendir(folder)) {
    while (const dirent* entry = readdir(open)) {
      if (entry->d_name[0] != '.') ++count;
    }
    closedir(open);
  }
  return count;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

ProcessUse read_process_use() {
  ProcessUse use;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) use.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  std::ifstream pages("/proc/self/statm");
  double total = 0, resident = 0;
  if (pages >> total >> resident) use.resident_bytes = resident * static_cast<double>(sysconf(_SC_PAGESIZE));
  use.open_files = count_entries("/proc/self/fd") - 1;  // without the one that counted
  use.threads = count_entries("/proc/self/task");
  return use;
}

}  // namespace penstock::metrics
