// The meaning in the configuration of an option that a command does not have.
#pragma once
#include <string>

namespace trireme::cli {

// The key that `word` means: "steps" is train.steps, "optimizer.lrr" is optimizer.lr, and "model"
// is model.name. An empty text if it means none.
std::string key_meant_by(std::string word);

}  // namespace trireme::cli
