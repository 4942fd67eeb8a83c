#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trireme/parallel/servers/tables/dealt_rows.h>
#include <trireme/parallel/servers/tables/row_optimizer.h>
#include <cstring>

namespace trireme::servers {

std::vector<DealtRows> DealtRows::deal(const plan::TablePlan& plan, int table,
                                       const at::Tensor& rows) {
  const std::span<const int64_t> all(rows.const_data_ptr<int64_t>(),
                                     static_cast<size_t>(rows.numel()));
  std::vector<DealtRows> dealt(static_cast<size_t>(plan.facts.servers));
  if (dealt.size() == 1) {
    dealt[0].whole_ = rows;
    dealt[0].rows_ = all;
    return dealt;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    DealtRows& server = dealt[static_cast<size_t>(plan.server_of(table, all[i]))];
    server.own_.push_back(all[i]);
    server.places_.push_back(static_cast<int64_t>(i));
  }
  for (DealtRows& server : dealt) server.rows_ = server.own_;
  return dealt;
}

net::Message::Tensor DealtRows::rows() const {
  return {{"", "int64", {count()}, rows_.size_bytes()}, rows_.data()};
}

at::Tensor DealtRows::place_in(const at::Tensor& values) const {
  if (whole_.defined()) return values;
  return at::empty({count(), values.size(1)}, values.options());
}

at::Tensor DealtRows::part_of(const at::Tensor& values) const {
  if (whole_.defined()) return values;
  const at::Tensor part = place_in(values);
  std::vector<const float*> from;
  const float* const first = values.const_data_ptr<float>();
  for (const int64_t place : places_) from.push_back(first + place * values.size(1));
  gather_rows(from.data(), from.size(), values.size(1), part.mutable_data_ptr<float>());
  return part;
}

void DealtRows::spread(const at::Tensor& part, const at::Tensor& values) const {
  if (whole_.defined()) return;
  const int64_t width = values.size(1);
  const float* from = part.const_data_ptr<float>();
  float* const to = values.mutable_data_ptr<float>();
  for (const int64_t place : places_) {
    std::memcpy(to + place * width, from, static_cast<size_t>(width) * sizeof(float));
    from += width;
  }
}

}  // namespace trireme::servers
