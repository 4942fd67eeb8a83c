// Models of the command line, with what they take.
#pragma once
#include <trireme/models/shapes.h>

namespace trireme::models {

struct Case {
  ModelOptions options;
  InputSpec input;
};

}  // namespace trireme::models
