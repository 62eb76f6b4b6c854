#include "cli/openmp_waits.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace snug {
namespace {

// Some 10 µs: longer than a barrier between threads that all have a core, far shorter than a core is lost for (bench/contention).
constexpr const char* kSpinCount = "1000";

}  // namespace

void shorten_openmp_waits(char** arguments) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  // The path and not /proc/self/exe, so that lists of processes show the program's name.
  std::array<char, 4096> path;
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) return;
  path[static_cast<size_t>(length)] = '\0';
  if (::access(path.data(), X_OK) != 0 || ::setenv("GOMP_SPINCOUNT", kSpinCount, 0) != 0) return;
  ::execv(path.data(), arguments);
}

}  // namespace snug
