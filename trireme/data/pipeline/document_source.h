// The documents of a reader as they are: rows of tokens of different lengths, for packs.
#pragma once
#include <trireme/data/pipeline/skipped_records.h>
#include <trireme/data/source.h>
#include <trireme/plan/split.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::data {

class DocumentSource : public Source {
 public:
  // `field` has the tokens, which lie in 0..classes-1; 0: in no known range. `subset` has the
  // records that count, in ascending order; none: all. Records that the index knows as damaged
  // have no tokens in it; they are counted here if damaged ones are skipped. Throws
  // Error(invalid_argument) if these are more than the rule allows.
  DocumentSource(std::shared_ptr<const records::Reader> reader, std::string field,
                 plan::Subset subset, int64_t classes = 0, BadRecords bad_records = {});
  int64_t size() const override { return subset_.empty() ? reader_->size() : subset_.size(); }
  // Data int64 [tokens], and no target. Throws Error(corrupt) naming a record whose length is not
  // the one that the index says, and Error(invalid_argument) naming one with a token outside the
  // classes.
  Example get(const Draw& draw) const override;
  bool leaves_out() const override { return skipped_.skips(); }
  std::optional<Example> get_if_kept(const Draw& draw) const override;
  std::vector<int64_t> bad_records() const override { return skipped_.numbers(); }
  int64_t reads_ahead() const override { return reader_->reads_ahead(); }
  void announce(const Draws& draws) const override;
  void release(const Draws& draws) const override;

 private:
  // The record of a document. Throws Error(invalid_argument) for one outside 0..size()-1.
  int64_t record_of(int64_t document) const;
  std::vector<int64_t> records_of(const Draws& draws) const;
  std::shared_ptr<const records::Reader> reader_;
  std::string field_;
  plan::Subset subset_;
  int64_t classes_;
  SkippedRecords skipped_;
};

}  // namespace trireme::data
