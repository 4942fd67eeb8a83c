#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/document_source.h>
#include <trireme/data/pipeline/numbers.h>

namespace trireme::data {

Example DocumentSource::get(const Draw& draw) const {
  if (draw.index < 0 || draw.index >= size())
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("document {} is outside 0..{}", draw.index, size() - 1));
  const int64_t number = subset_.empty() ? draw.index : subset_[static_cast<size_t>(draw.index)];
  records::Record record;
  reader_->read(number, record);
  const records::Field* const tokens = record.find(field_);
  const int64_t expected = reader_->length(number).value_or(-1);
  if (!tokens || tokens->encoded || count_of(*tokens) != expected)
    throw Error(ErrorCode::corrupt, "data",
                fmt::format("{}: it has {} tokens, and {} by the index", reader_->place(number),
                            tokens && !tokens->encoded ? count_of(*tokens) : 0, expected),
                "trireme data index, if the change was meant");
  Example document{at::empty({expected}, at::kLong), {}};
  copy_numbers(*tokens, document.data.mutable_data_ptr<int64_t>());
  return document;
}

}  // namespace trireme::data
