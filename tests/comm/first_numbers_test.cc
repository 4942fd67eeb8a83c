#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <trireme/comm/first_numbers.h>

namespace first_numbers_test {
namespace {

using trireme::comm::seed_by_job;

uint64_t seed_now() { return at::detail::getDefaultCPUGenerator().current_seed(); }
const uint64_t seed_at_start = seed_now();

trireme::membership::Identity rank_of_two(int rank, const std::string& token) {
  trireme::membership::Identity identity;
  identity.worker = rank;
  identity.workers = 2;
  identity.token = token;
  return identity;
}

uint64_t seed_of(const trireme::membership::Identity& identity) {
  at::manual_seed(seed_at_start);  // As if the programme had set none.
  seed_by_job(identity);
  return seed_now();
}

TEST(FirstNumbers, AreThoseOfTheJobOnAllRanks) {
  const uint64_t seed = seed_of(rank_of_two(0, "one"));
  EXPECT_NE(seed, seed_at_start);
  EXPECT_EQ(seed_of(rank_of_two(1, "one")), seed);
  EXPECT_NE(seed_of(rank_of_two(0, "another")), seed);
}

TEST(FirstNumbers, AreThoseOfTheProgrammeIfItHasSetASeed) {
  seed_of(rank_of_two(0, "one"));
  at::manual_seed(5);
  seed_by_job(rank_of_two(0, "one"));
  EXPECT_EQ(seed_now(), 5u);
}

TEST(FirstNumbers, AreLeftAsTheyAreInAProcessAlone) {
  EXPECT_EQ(seed_of(trireme::membership::Identity()), seed_at_start);
}

}  // namespace
}  // namespace first_numbers_test
