#include <fmt/format.h>

#include <trireme/models/checks.h>
#include <trireme/models/dlrm.h>

namespace trireme::models {
namespace {

void resolve_dlrm(ModelOptions& options) {
  if (options.bottom.empty()) options.bottom = {512, 256, 64};
  if (options.top.empty()) options.top = {512, 256};
  if (options.rows < 0) options.rows = 10'000;
  if (options.embedding_dim < 0) options.embedding_dim = 16;
  require_positive("model.bottom", options.bottom);
  require_positive("model.top", options.top);
  require_positive("model.rows", options.rows);
  require_positive("model.embedding_dim", options.embedding_dim);
}

void add_mlp_of_dlrm(ShapeList& list, const std::string& name, int64_t width,
                     const std::vector<int64_t>& hidden, int64_t last, bool in_blocks) {
  for (size_t i = 0; i <= hidden.size(); ++i) {
    const bool is_last = i == hidden.size();
    const int64_t out = is_last ? last : hidden[i];
    if (in_blocks) list.begin_block(is_last ? "output" : fmt::format("{}{}", name, i));
    list.add_linear(fmt::format("{}.{}", name, i), width, out);
    width = out;
  }
}

void add_dlrm(ShapeList& list, const ModelOptions& options, const InputSpec& input) {
  check_features(options, input);
  if (input.categories < 1)
    refuse_input(options, input, "categorical features beside the numbers", "data.name=criteo");
  int64_t numbers = 1;
  for (const int64_t size : input.shape) numbers *= size;
  const int64_t vectors = input.categories + 1;
  list.begin_block("features");
  for (int64_t i = 0; i < input.categories && !options.tables_elsewhere; ++i)
    list.add(fmt::format("embeddings.{}.weight", i), {options.rows, options.embedding_dim});
  add_mlp_of_dlrm(list, "bottom", numbers, options.bottom, options.embedding_dim, false);
  add_mlp_of_dlrm(list, "top", options.embedding_dim + vectors * (vectors - 1) / 2, options.top,
                  input.classes, true);
}

}  // namespace

std::vector<plan::TableSpec> tables_of_dlrm(const ModelOptions& options, const InputSpec& input,
                                            bool unbounded) {
  std::vector<plan::TableSpec> tables;
  for (int64_t i = 0; i < input.categories; ++i)
    tables.push_back(
        {fmt::format("embeddings.{}", i), unbounded ? 0 : options.rows, options.embedding_dim});
  return tables;
}

// The benchmark input is that of Criteo's data.
Family dlrm_family() {
  return {.names = {"dlrm"},
          .keys = {"model.bottom", "model.top", "model.rows", "model.embedding_dim"},
          .resolve = resolve_dlrm,
          .add_shapes = add_dlrm,
          .tables = tables_of_dlrm,
          .default_input = [](const ModelOptions&) -> InputSpec { return {{13}, 2, 26}; },
          .default_batch = [](const ModelOptions&) -> int64_t { return 128; }};
}

}  // namespace trireme::models
