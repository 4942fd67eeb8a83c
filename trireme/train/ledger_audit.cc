#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/monitor/event_json.h>
#include <trireme/train/ledger_audit.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <variant>

namespace trireme {
namespace {

using monitor::CommitRecord;
using monitor::ContinueRecord;

struct Record {
  double time = 0;
  std::variant<ContinueRecord, CommitRecord> what;
  std::string where;  // "log.jsonl:812"
};

bool at_or_after(plan::DataPosition a, plan::DataPosition b) {
  return a.epoch != b.epoch ? a.epoch > b.epoch : a.consumed >= b.consumed;
}
bool speaks_of_samples(const Json& json) {
  if (!json.is_object() || !json.contains("event")) return false;
  return json["event"] == "commit" || json["event"] == "continue";
}

// A process that is killed can leave a record without its end, or without the end of its line.
// Other processes append to that line, so it holds several records, of which some are torn. Quotes
// within a text are escaped, so the start of a record appears nowhere else.
std::vector<Json> records_of(std::string_view line) {
  constexpr std::string_view kStart = "{\"event\":";
  const auto parsed = [](std::string_view text) {
    return Json::parse(text, nullptr, /*allow_exceptions=*/false);
  };
  std::vector<Json> records{parsed(line)};
  if (!records[0].is_discarded()) return records;
  records.clear();
  for (size_t from = 0; from < line.size();) {
    const size_t next = std::min(line.size(), line.find(kStart, from + 1));
    records.push_back(parsed(line.substr(from, next - from)));
    from = next;
  }
  return records;
}

class Auditor {
 public:
  void read(const std::filesystem::path& log) {
    std::ifstream file(log);
    if (!file)
      throw Error(ErrorCode::io, "ledger",
                  fmt::format("cannot read {}: {}", log.string(), std::strerror(errno)));
    int64_t number = 0, torn = 0, first_torn = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (line.empty()) continue;
      bool is_torn = false;
      for (const Json& json : records_of(line)) {
        is_torn = is_torn || json.is_discarded();
        if (speaks_of_samples(json))
          take(json, fmt::format("{}:{}", log.filename().string(), number));
      }
      if (is_torn && torn++ == 0) first_torn = number;
    }
    if (torn > 0)
      audit_.notes.push_back(fmt::format("{}: {} torn line{}, the first is line {}", log.string(),
                                         torn, torn > 1 ? "s" : "", first_torn));
    ++logs_;
  }

  LedgerAudit finish() {
    if (records_.empty() && audit_.errors.empty())
      throw Error(ErrorCode::not_found, "ledger", "the logs hold no record of samples",
                  "the folder of a run that had monitor.json_lines on");
    // One file is in order as it is. Between files only the time decides.
    if (logs_ > 1)
      std::stable_sort(records_.begin(), records_.end(),
                       [](const Record& a, const Record& b) { return a.time < b.time; });
    for (const Record& record : records_)
      std::visit([&](const auto& what) { take(what, record); }, record.what);
    if (!begun_)
      audit_.errors.push_back(
          fmt::format("{} records of samples, and none that says where the run begins", early_));
    replay();
    return std::move(audit_);
  }

 private:
  void take(const Json& json, std::string where) {
    const auto event = monitor::event_of(json);
    if (!event)
      return audit_.errors.push_back(
          fmt::format("{}: this record of samples cannot be read", where));
    Record record{monitor::read_number(json.value("time", Json(0))).value_or(0), {}, {}};
    record.where = std::move(where);
    if (const auto* from = std::get_if<ContinueRecord>(&*event))
      record.what = *from;
    else
      record.what = std::get<CommitRecord>(*event);
    records_.push_back(std::move(record));
  }
  void take(const ContinueRecord& from, const Record& record) {
    if (begun_) ++audit_.continuations;
    begun_ = true;
    const auto undone = std::erase_if(counted_, [&](const Record* counted) {
      const auto* commit = std::get_if<CommitRecord>(&counted->what);
      return commit && at_or_after(commit->position, from.position);
    });
    audit_.taken_back += static_cast<int64_t>(undone);
    counted_.push_back(&record);
  }
  void take(const CommitRecord& commit, const Record& record) {
    // The record of a predecessor; the process that took over writes it again.
    if (!begun_) return void(++early_);
    for (auto counted = counted_.rbegin(); counted != counted_.rend(); ++counted) {
      const auto* known = std::get_if<CommitRecord>(&(*counted)->what);
      if (known && known->step < commit.step) break;
      if (known && *known == commit) return void(++audit_.written_twice);
    }
    counted_.push_back(&record);
  }

  void replay() {
    Ledger ledger;
    for (const Record* record : counted_) {
      try {
        if (const auto* from = std::get_if<ContinueRecord>(&record->what)) {
          if (ledger.empty() && from->ledger.is_object() && from->step > 0)
            audit_.notes.push_back(
                fmt::format("{}: up to step {} only the checkpoint's ledger records the samples",
                            record->where, from->step));
          ledger.go_on(*from);
        } else {
          ledger.commit(std::get<CommitRecord>(record->what));
          ++audit_.batches;
          audit_.left_out += std::get<CommitRecord>(record->what).left_out;
        }
      } catch (const Error& error) {
        audit_.errors.push_back(fmt::format("{}: {}", record->where, brief(error)));
      }
    }
    if (const auto begin = ledger.begin();
        !ledger.empty() && (begin.epoch > 0 || begin.consumed > 0))
      audit_.notes.push_back(
          fmt::format("nothing is known about the steps before sample {} of epoch {}",
                      begin.consumed, begin.epoch));
    audit_.samples = ledger.samples();
    audit_.finished_epochs = ledger.finished_epochs();
    for (std::string& error : ledger.errors()) audit_.errors.push_back(std::move(error));
  }

  LedgerAudit audit_;
  int logs_ = 0;
  bool begun_ = false;
  // Records before the first one that says where training continues.
  int64_t early_ = 0;
  std::vector<Record> records_;
  std::vector<const Record*> counted_;
};

}  // namespace

std::vector<std::filesystem::path> logs_of(const std::filesystem::path& run) {
  if (!path_exists(run))
    throw Error(ErrorCode::not_found, "ledger", fmt::format("{} does not exist", run.string()),
                "the folder of a run (run.dir)");
  std::error_code failure;
  if (!std::filesystem::is_directory(run, failure)) return {run};
  std::vector<std::filesystem::path> logs;
  for (std::filesystem::directory_iterator entry(run, failure), end; !failure && entry != end;
       entry.increment(failure))
    if (entry->path().extension() == ".jsonl") logs.push_back(entry->path());
  if (failure)
    throw Error(ErrorCode::io, "ledger",
                fmt::format("cannot list {}: {}", run.string(), failure.message()),
                "check the path and its permissions");
  if (logs.empty())
    throw Error(ErrorCode::not_found, "ledger",
                fmt::format("{} holds no log (*.jsonl)", run.string()),
                "the folder of a run that had monitor.json_lines on");
  std::sort(logs.begin(), logs.end());
  return logs;
}

LedgerAudit audit_logs(std::span<const std::filesystem::path> logs) {
  Auditor auditor;
  for (const auto& log : logs) auditor.read(log);
  return auditor.finish();
}

std::string LedgerAudit::describe() const {
  std::string text = fmt::format(
      "{} batches, {} epoch{} finished: {} uses of samples expected, {} seen once, {} lost, {} "
      "repeated\n",
      batches, finished_epochs, finished_epochs == 1 ? "" : "s", samples.expected,
      samples.seen_once, samples.lost, samples.repeated);
  if (continuations > 0 || written_twice > 0)
    text += fmt::format(
        "continued {} time{}: {} batches taken back and repeated, {} records written twice\n",
        continuations, continuations == 1 ? "" : "s", taken_back, written_twice);
  if (left_out > 0)
    text += fmt::format(
        "{} of the uses were of samples that were left out: filtered, or damaged\n", left_out);
  for (const std::string& note : notes) text += fmt::format("note: {}\n", note);
  for (const std::string& error : errors) text += fmt::format("WRONG: {}\n", error);
  if (passed()) text += "each sample was used exactly once\n";
  return text;
}

Json LedgerAudit::to_json() const {
  return {{"passed", passed()},
          {"samples", samples.to_json()},
          {"finished_epochs", finished_epochs},
          {"batches", batches},
          {"left_out", left_out},
          {"written_twice", written_twice},
          {"taken_back", taken_back},
          {"continuations", continuations},
          {"errors", errors},
          {"notes", notes}};
}

}  // namespace trireme
