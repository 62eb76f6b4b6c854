// JSON as every file that holds it is read. What was read and is written again is read as the same.
#include "base/json.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace snug;
  Json json;
  if (!fuzz::read_or_refuse([&] { json = parse_json(fuzz::as_text(data, size), "f.json"); })) return 0;
  fuzz::check(parse_json(json.dump(), "f.json") == json, "written JSON is read as the same");
  if (json.is_object()) {
    Json members = Json::object();
    parse_json_members(fuzz::as_text(data, size), "f.json", {}, "",
                       [&](std::string&& name, Json&& value) { members[name] = std::move(value); });
    fuzz::check(members == json, "its members one by one are the object");
  }
  quote_json(json);
  return 0;
}
