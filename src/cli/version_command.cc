#include <cstdio>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "backends/cpu/dispatch.h"
#include "backends/cpu/onednn.h"
#include "base/json.h"
#include "cli/commands.h"
#include "observe/process_memory.h"

namespace snug {
namespace {

std::string processor_name() {
  std::string name = "unknown";
  if (std::FILE* file = std::fopen("/proc/cpuinfo", "r")) {
    char line[512];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      const std::string_view text(line);
      if (!text.starts_with("model name")) continue;
      const size_t colon = text.find(": ");
      if (colon != std::string_view::npos) name = std::string(text.substr(colon + 2, text.size() - colon - 3));
      break;
    }
    std::fclose(file);
  }
  return name;
}

}  // namespace

int version_command(const ProgramOptions& options) {
  const auto threads = static_cast<int>(default_threads());
  const cpu::Dispatch dispatch = cpu::choose_dispatch(threads);
  Json libraries = Json::object();
  libraries["onednn"] = cpu::onednn_version();
  libraries["fmt"] = fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100);
  libraries["nlohmann_json"] = fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                           NLOHMANN_JSON_VERSION_PATCH);
  Json version = Json::object();
  version["version"] = SNUG_VERSION;
  version["build"] = SNUG_BUILD_TYPE;
  version["compiler"] = fmt::format("g++ {}", __VERSION__);
  version["libraries"] = libraries;
  version["processor"] = processor_name();
  version["dispatch"] = cpu::cpu_class_name(dispatch.cpu_class);
  version["dispatch_reason"] = dispatch.reason;
  version["threads"] = threads;
  if (options.json) {
    std::printf("%s\n", version.dump(2).c_str());
    return 0;
  }
  std::printf("snug %s (%s, %s)\n", SNUG_VERSION, SNUG_BUILD_TYPE, version["compiler"].get<std::string>().c_str());
  std::string listed;
  for (const auto& [name, number] : libraries.items())
    listed += (listed.empty() ? "" : ", ") + name + " " + number.get<std::string>();
  std::printf("libraries: %s\n", listed.c_str());
  std::printf("processor: %s, %d threads\n", processor_name().c_str(), threads);
  std::printf("kernels:   %s (%s)\n", version["dispatch"].get<std::string>().c_str(), dispatch.reason.c_str());
  return 0;
}

}  // namespace snug
