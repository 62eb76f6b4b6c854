#include "models/load_model.h"

#include "base/errors.h"
#include "models/gpt2.h"
#include "models/llama.h"

namespace snug {

Model load_model(const ModelDirectory& directory) {
  switch (directory.family()) {
    case ModelFamily::kGpt2:
      return gpt2_model(directory.gpt2_config());
    case ModelFamily::kLlama:
      return llama_model(directory.llama_config());
  }
  throw_internal("model family {} has no model", static_cast<int>(directory.family()));
}

}  // namespace snug
