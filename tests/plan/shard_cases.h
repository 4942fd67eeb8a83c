// Models and hosts for which tests plan the shards of shared memory.
#pragma once
#include <trireme/plan/shared_layout.h>
#include <string>
#include <vector>

namespace trireme::plan {

struct ShardCase {
  std::vector<TensorSpec> params;
  std::vector<int> hosts;
  SharedLayout layout;

  int64_t trainable_elements() const {
    int64_t sum = 0;
    for (const TensorSpec& spec : params)
      if (spec.trainable) sum += spec.elements();
    return sum;
  }
  std::string describe() const {
    std::string text = "hosts";
    for (const int host : hosts) text += " " + std::to_string(host);
    for (const TensorSpec& spec : params)
      text += (spec.trainable ? ", " : ", frozen ") + spec.name + " " + spec.describe();
    return text;
  }
};

// Parameters with sizes on both sides of a cache line, one by one and together, of each type that
// shared memory can hold, and with frozen ones among them.
inline std::vector<std::vector<TensorSpec>> models_of_all_kinds() {
  std::vector<std::vector<TensorSpec>> models(1);  // The first one has no parameters.
  std::vector<TensorSpec> both;
  for (const DType dtype : {DType::float32, DType::float64}) {
    std::vector<TensorSpec> all;
    for (const int64_t elements : {0, 1, 15, 16, 17, 4096}) {
      all.push_back({"p" + std::to_string(elements), {elements}, dtype});
      models.push_back({all.back()});
    }
    models.push_back(all);
    both.insert(both.end(), all.begin(), all.end());
  }
  models.push_back(both);
  for (size_t frozen = 0; frozen < 3; ++frozen) {
    models.push_back(both);
    for (size_t p = 0; p < both.size(); ++p)
      models.back()[p].trainable = frozen < 2 && p % 2 == frozen;  // The last one is all frozen.
  }
  return models;
}

// Calls visit(ShardCase) for these models on 1, 2, 3, 4 and 7 ranks: on one host, dealt out to two
// hosts in turn, with the last rank apart, and each alone.
template <typename Visit>
void for_each_shard_case(Visit visit) {
  for (const std::vector<TensorSpec>& params : models_of_all_kinds()) {
    std::vector<int> states;
    for (size_t p = 0; p < params.size(); ++p) states.push_back(static_cast<int>(p % 4));
    for (const int ranks : {1, 2, 3, 4, 7}) {
      std::vector<std::vector<int>> layouts(ranks > 1 ? 4 : 1);
      for (int rank = 0; rank < ranks; ++rank) {
        layouts[0].push_back(0);
        if (ranks == 1) continue;
        layouts[1].push_back(rank % 2);
        layouts[2].push_back(rank + 1 == ranks ? 1 : 0);
        layouts[3].push_back(rank);
      }
      for (const std::vector<int>& hosts : layouts)
        visit(ShardCase{params, hosts, lay_out(params, states)});
    }
  }
}

}  // namespace trireme::plan
