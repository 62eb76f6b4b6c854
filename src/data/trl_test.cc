// Rows of data files are learned as TRL learns them: tests/fixtures/dataset/trl.json (tools/make_dataset_fixtures.py) holds the ids that its
// SFTTrainer makes of rows, and which of them have labels. Where Snug does something else, it also holds what, and why.
#include <map>
#include <memory>

#include "base/json.h"
#include "base/testing.h"
#include "data/encode_row.h"
#include "formats/dataset/dataset_reader.h"

namespace snug {
namespace {

const std::string kFixtures = std::string(SNUG_SOURCE_DIR) + "/tests/fixtures/";

// Spans of ids that are learned, as the file has them.
Json learned_spans(const std::vector<bool>& supervised) {
  Json spans = Json::array();
  for (size_t begin = 0, end = 0; begin < supervised.size(); begin = end) {
    while (end < supervised.size() && supervised[end] == supervised[begin]) ++end;
    if (supervised[begin]) spans.push_back({begin, end});
  }
  return spans;
}

TEST(Trl, RowsAreLearnedAsItsTrainerLearnsThem) {
  const std::string path = kFixtures + "dataset/trl.json";
  const Json groups = parse_json(read_small_file(path, Bytes(1 << 20)), path).at("rows");
  std::map<std::string, std::unique_ptr<const Tokenizer>> tokenizers;
  TemporaryDirectory directory;
  int same = 0, different = 0;
  for (const Json& group : groups) {
    const auto name = group.at("tokenizer").get<std::string>();
    auto& tokenizer = tokenizers[name];
    if (!tokenizer) tokenizer = Tokenizer::load(kFixtures + "tokenizers/" + name + ".json");
    std::optional<ChatTemplate> chat_template;
    if (const Json& file = group.at("template"); file.is_string()) {
      const std::string source = kFixtures + "chat_templates/" + file.get<std::string>() + ".jinja";
      Json variables = Json::object();
      for (const std::string variable : {"bos_token", "eos_token"})
        if (group.at(variable).is_string()) variables[variable] = group.at(variable);
      chat_template = ChatTemplate::parse(read_small_file(source, Bytes(1 << 20)), source, variables);
    }
    RowEncoder encoder({.tokenizer = tokenizer.get(),
                        .chat_template = chat_template ? &*chat_template : nullptr,
                        .end_of_text = tokenizer->token_to_id(group.at("eos_token").get<std::string>()),
                        .vocabulary = 1 << 20,
                        .train_on_inputs = group.at("train_on_inputs").get<bool>()});

    std::string lines;
    for (const Json& row : group.at("rows")) lines += row.dump() + "\n";
    const std::vector<std::string> files = {directory.add("rows.jsonl", lines)};
    DatasetReader reader(find_data_files(files), {.has_chat_template = chat_template.has_value()});
    for (const Json& trl : group.at("samples")) {
      const std::optional<PlacedRow> row = reader.next();
      ASSERT_TRUE(row);
      const Sample sample = encoder.encode(row->row, row->place);
      const auto differs = trl.find("snug");
      const Json& expected = differs == trl.end() ? trl : *differs;
      SCOPED_TRACE(name + " " + group.at("template").dump() + " " + group.at("trl").dump() + " " +
                   group.at("rows").at(static_cast<size_t>(row->place.line - 1)).dump());
      EXPECT_EQ(Json(sample.ids), expected.at("ids"));
      EXPECT_EQ(learned_spans(sample.supervised), expected.at("learned"));
      ++(differs == trl.end() ? same : different);
      if (differs != trl.end()) {
        EXPECT_TRUE(trl.at("ids") != differs->at("ids") || trl.at("learned") != differs->at("learned"))
            << differs->at("why");
      }
    }
    EXPECT_FALSE(reader.next());
  }
  EXPECT_GE(same, 150);
  EXPECT_GE(different, 50);
}

}  // namespace
}  // namespace snug
