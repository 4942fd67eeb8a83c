// The programmes of examples/from_libtorch in one, so that a build reads torch's headers once.
// `ports mnist_before digits.csv` runs one of them; test_ports.py compares them.
#include <torch/torch.h>
#include <trireme/trireme.h>

#ifdef USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/from_libtorch/digits.h"

// All that they include has been read, so each of them fits into a namespace.
#define main run
namespace mnist_before {
#include "../../examples/from_libtorch/mnist_before.cc"
}
namespace mnist_after {
#include "../../examples/from_libtorch/mnist_after.cc"
}
namespace custom_dataset_before {
#include "../../examples/from_libtorch/custom_dataset_before.cc"
}
namespace custom_dataset_after {
#include "../../examples/from_libtorch/custom_dataset_after.cc"
}
namespace dcgan_before {
#include "../../examples/from_libtorch/dcgan_before.cc"
}
namespace dcgan_after {
#include "../../examples/from_libtorch/dcgan_after.cc"
}
namespace regression_before {
#include "../../examples/from_libtorch/regression_before.cc"
}
namespace regression_after {
#include "../../examples/from_libtorch/regression_after.cc"
}
namespace dist_mnist_after {
#include "../../examples/from_libtorch/dist_mnist_after.cc"
}
#ifdef USE_C10D_GLOO
namespace dist_mnist_before {
#include "../../examples/from_libtorch/dist_mnist_before.cc"
}
#endif
#undef main

int main(int argc, char** argv) {
  const std::map<std::string, int (*)(int, char**)> programmes = {
      {"mnist_before", mnist_before::run},
      {"mnist_after", mnist_after::run},
      {"custom_dataset_before", custom_dataset_before::run},
      {"custom_dataset_after", custom_dataset_after::run},
      {"dcgan_before", dcgan_before::run},
      {"dcgan_after", dcgan_after::run},
      {"regression_before", regression_before::run},
      {"regression_after", regression_after::run},
#ifdef USE_C10D_GLOO
      {"dist_mnist_before", dist_mnist_before::run},
#endif
      {"dist_mnist_after", dist_mnist_after::run}};
  const auto found = programmes.find(argc > 1 ? argv[1] : "");
  return found == programmes.end() ? 77 : found->second(argc - 1, argv + 1);
}
