// A c10d::Store over the control connection: authenticated, and gone with the job.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <trireme/membership/member.h>
#include <memory>
#include <string>

namespace trireme::comm {

class ControlStore : public c10d::Store {
 public:
  ControlStore(std::shared_ptr<membership::Member> member, std::string prefix,
               Milliseconds timeout)
      : c10d::Store(timeout), member_(std::move(member)), prefix_(std::move(prefix)) {}

  using c10d::Store::compareSet;
  using c10d::Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<ControlStore>(member_, prefix_, timeout_);
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override {
    member_->set(prefix_ + key, text(value));
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    return bytes(member_->compare_set(prefix_ + key, text(expected), text(desired)));
  }
  std::vector<uint8_t> get(const std::string& key) override {
    return bytes(member_->get(prefix_ + key, Deadline::after(timeout_)));
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return member_->add(prefix_ + key, amount);
  }
  bool deleteKey(const std::string& key) override { return member_->erase(prefix_ + key); }
  bool check(const std::vector<std::string>& keys) override {
    for (const auto& key : keys)
      if (!member_->find(prefix_ + key)) return false;
    return true;
  }
  int64_t getNumKeys() override { return member_->count_keys(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    const Deadline deadline = Deadline::after(timeout);
    for (const auto& key : keys) member_->get(prefix_ + key, deadline);
  }

 private:
  static std::string text(const std::vector<uint8_t>& value) {
    return {value.begin(), value.end()};
  }
  static std::vector<uint8_t> bytes(const std::string& value) {
    return {value.begin(), value.end()};
  }

  std::shared_ptr<membership::Member> member_;
  std::string prefix_;
};

}  // namespace trireme::comm
