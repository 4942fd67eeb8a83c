// Rows of a table as one server has them, with their places among those of the caller.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/net/requests/message.h>
#include <trireme/plan/table_plan.h>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::servers {

class DealtRows {
 public:
  // Deals the rows out: [server].
  static std::vector<DealtRows> deal(const plan::TablePlan& plan, int table,
                                     const at::Tensor& rows);

  int64_t count() const { return std::ssize(rows_); }
  net::Message::Tensor rows() const;  // For a message. The data is this object's.
  // The part of `values`, [all rows, width], that belongs to these rows: the tensor itself, if
  // the server has all rows.
  at::Tensor part_of(const at::Tensor& values) const;
  // Memory for that part, and its copy into `values`, unless it is the tensor itself.
  at::Tensor place_in(const at::Tensor& values) const;
  void spread(const at::Tensor& part, const at::Tensor& values) const;

 private:
  at::Tensor whole_;               // The rows, if the server has all of them.
  std::span<const int64_t> rows_;  // Of whole_ or own_.
  std::vector<int64_t> own_, places_;
};

}  // namespace trireme::servers
