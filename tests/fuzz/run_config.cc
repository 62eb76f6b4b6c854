// A run's settings (YAML). What was read and is written again is read as the same.
#include "formats/run_config.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  std::vector<RunSetting> settings;
  if (!fuzz::read_or_refuse([&] { settings = parse_run_config(fuzz::as_text(data, size), "run.yaml"); }))
    return 0;
  const std::vector<RunSetting> again = parse_run_config(format_run_config(settings), "again.yaml");
  fuzz::check(again.size() == settings.size(), "written settings are read as many");
  for (size_t i = 0; i < again.size(); ++i)
    fuzz::check(again[i].key == settings[i].key && again[i].value == settings[i].value &&
                    again[i].items == settings[i].items,
                "written settings are read as the same");
  return 0;
}
