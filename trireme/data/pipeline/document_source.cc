#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/document_source.h>
#include <trireme/data/pipeline/numbers.h>

namespace trireme::data {

DocumentSource::DocumentSource(std::shared_ptr<const records::Reader> reader, std::string field,
                               plan::Subset subset, int64_t classes, BadRecords bad_records)
    : reader_(std::move(reader)),
      field_(std::move(field)),
      subset_(std::move(subset)),
      classes_(classes),
      skipped_(reader_, bad_records) {
  if (!bad_records.skip) return;
  records::Record record;
  for (const int64_t number : reader_->damaged()) {
    const bool counts =
        subset_.empty() || subset_.count_below(number + 1) > subset_.count_below(number);
    if (!counts) continue;
    try {
      reader_->read(number, record);
    } catch (const Error& error) {
      if (!skipped_.take(error, number)) throw;
    }
  }
}

std::optional<Example> DocumentSource::get_if_kept(const Draw& draw) const {
  try {
    return get(draw);
  } catch (const Error& error) {
    const int64_t number = record_of(draw.index);
    if (!skipped_.take(error, number)) throw in_its_place(*reader_, number, error);
    return std::nullopt;
  }
}

int64_t DocumentSource::record_of(int64_t document) const {
  if (document < 0 || document >= size())
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("document {} is outside 0..{}", document, size() - 1));
  return subset_.empty() ? document : subset_[document];
}

std::vector<int64_t> DocumentSource::records_of(const Draws& draws) const {
  std::vector<int64_t> records;
  for (const int64_t document : draws.indices) records.push_back(record_of(document));
  return records;
}

void DocumentSource::announce(const Draws& draws) const { reader_->announce(records_of(draws)); }

void DocumentSource::release(const Draws& draws) const { reader_->release(records_of(draws)); }

Example DocumentSource::get(const Draw& draw) const {
  const int64_t number = record_of(draw.index);
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
  auto* const numbers = document.data.mutable_data_ptr<int64_t>();
  copy_numbers(*tokens, numbers);
  if (classes_ > 0)
    check_tokens({numbers, static_cast<size_t>(expected)}, classes_,
                 [&] { return reader_->place(number); });
  return document;
}

}  // namespace trireme::data
