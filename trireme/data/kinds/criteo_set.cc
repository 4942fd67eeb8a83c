#include <fmt/format.h>

#include <trireme/data/kinds/content_digest.h>
#include <trireme/data/kinds/criteo_set.h>
#include <trireme/data/kinds/held_out.h>
#include <trireme/data/kinds/shipped_data.h>
#include <utility>

namespace trireme::data {
namespace {

std::string digest_of_clicks(const ClickTable& table) {
  checkpoint::Digest digest;
  add_values(digest, fmt::format("{} clicks of {} numbers and {} categories\n", table.count,
                                 kClickNumbers, kClickCategories));
  add_values(digest, table.numbers);
  add_values(digest, table.categories);
  add_values(digest, table.labels);
  return digest.text();
}

}  // namespace

Dataset read_criteo_set(const DataOptions& options) {
  ClickTable train =
      read_clicks(options.path.empty() ? shipped_data("clicks.tsv.gz").string() : options.path);
  ClickTable test;
  Dataset data;
  data.content = digest_of_clicks(train);
  hold_out(options, train, test, data);
  data.train_samples = train.count;
  data.test_samples = test.count;
  data.input = {{kClickNumbers}, 2, kClickCategories};
  data.samples = ClickParts{std::make_shared<const ClickTable>(std::move(train)),
                            std::make_shared<const ClickTable>(std::move(test))};
  require_training_samples(data);
  return data;
}

}  // namespace trireme::data
