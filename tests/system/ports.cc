// The programmes of examples/from_libtorch in one, so that a build reads torch's headers once.
// `ports mnist_before digits.csv` runs one of them; test_ports.py compares them.
#include <torch/script.h>
#include <torch/torch.h>
#include <trireme/trireme.h>

#ifdef USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

#include <algorithm>
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
namespace transfer_learning_before {
#include "../../examples/from_libtorch/transfer_learning_before.cc"
}
namespace transfer_learning_after {
#include "../../examples/from_libtorch/transfer_learning_after.cc"
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

// Writes the backbone of transfer_learning: features of an image that are drawn once.
int write_backbone(int, char** argv) {
  torch::manual_seed(2);
  torch::jit::script::Module backbone("Backbone");
  backbone.register_parameter("conv", torch::randn({8, 1, 3, 3}) * 0.3, /*is_buffer=*/false);
  backbone.register_parameter("hidden", torch::randn({8 * 6 * 6, 64}) * 0.1, /*is_buffer=*/false);
  backbone.define(R"(
    def forward(self, x):
      x = torch.relu(torch.conv2d(x, self.conv))
      return torch.relu(torch.matmul(torch.flatten(x, 1), self.hidden))
  )");
  backbone.save(argv[1]);
  return 0;
}

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
      {"backbone", write_backbone},
      {"transfer_learning_before", transfer_learning_before::run},
      {"transfer_learning_after", transfer_learning_after::run},
#ifdef USE_C10D_GLOO
      {"dist_mnist_before", dist_mnist_before::run},
#endif
      {"dist_mnist_after", dist_mnist_after::run}};
  const auto found = programmes.find(argc > 1 ? argv[1] : "");
  return found == programmes.end() ? 77 : found->second(argc - 1, argv + 1);
}
