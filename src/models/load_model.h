// models/load_model.h — a model directory's config.json as a Model
#pragma once

#include "formats/model_directory.h"
#include "models/model.h"

namespace snug {

// Reads config.json alone. Throws UserError(kBadFile) as formats/model_directory.h and the family's
// configuration do.
Model load_model(const ModelDirectory& directory);

}  // namespace snug
