// The memory in which the other ranks of a host find gradients: each place is used once a step.
#include <gtest/gtest.h>
#include <trireme/parallel/shared/gradient_slots.h>
#include <array>
#include <cstring>
#include <set>

namespace trireme::shared::gradient_slots_test {
namespace {

constexpr size_t kSlot = 256, kStride = 512, kBegin = 1024, kSpill = 4096;

// Slots 0, 1 and 2 have one size; slot 3 is twice as large.
class GradientSlotsTest : public ::testing::Test {
 protected:
  static std::shared_ptr<net::SharedMemory> memory() {
    auto made = std::make_shared<net::SharedMemory>(
        net::SharedMemory::create(8192, net::Sharing::threads, "a test"));
    made->reserve(0, 8192);
    return made;
  }
  std::byte* at(size_t place) const { return memory_->data() + place; }
  std::byte* allocate(size_t bytes = kSlot) {
    return static_cast<std::byte*>(slots_.try_allocate(bytes));
  }
  size_t publish(int index, const void* data) { return slots_.publish(index, data); }
  static std::array<std::byte, 2 * kSlot> filled(int value) {
    std::array<std::byte, 2 * kSlot> values{};
    values.fill(static_cast<std::byte>(value));
    return values;
  }

  std::shared_ptr<net::SharedMemory> memory_ = memory();
  GradientSlots slots_{memory_,
                       kBegin,
                       kSpill,
                       {64, 64 + kStride, 64 + 2 * kStride, 64 + 3 * kStride},
                       {kSlot, kSlot, kSlot, 2 * kSlot}};
};

TEST_F(GradientSlotsTest, NoTensorGetsThePlaceOfAPublishedCopy) {
  const auto elsewhere = filled(7);
  const size_t place = publish(1, elsewhere.data());
  for (const std::byte* tensor = allocate(); tensor != nullptr; tensor = allocate())
    EXPECT_NE(tensor, at(place));
  EXPECT_EQ(std::memcmp(at(place), elsewhere.data(), kSlot), 0);
  slots_.end_step();
  EXPECT_EQ(allocate(), at(place));
}

TEST_F(GradientSlotsTest, APublishedTensorsPlaceStaysItsOwnAfterTheTensorIsFreed) {
  std::byte* const tensor = allocate();
  const size_t place = publish(0, tensor);
  EXPECT_EQ(at(place), tensor) << "the tensor was copied";
  slots_.give_back(tensor);
  for (const std::byte* other = allocate(); other != nullptr; other = allocate())
    EXPECT_NE(other, tensor);
  slots_.end_step();
  EXPECT_EQ(allocate(), tensor);
}

TEST_F(GradientSlotsTest, TwoGradientsInOneMemoryGetTwoPlaces) {
  std::byte* const tensor = allocate();
  std::memset(tensor, 5, kSlot);
  const std::set<size_t> places = {publish(0, tensor), publish(1, tensor), publish(2, tensor)};
  EXPECT_EQ(places.size(), 3u);
  for (const size_t place : places) EXPECT_EQ(std::memcmp(at(place), tensor, kSlot), 0);
}

TEST_F(GradientSlotsTest, PartsOfOneTensorGetPlacesThatDoNotOverlap) {
  std::byte* const tensor = allocate(2 * kSlot);
  std::memset(tensor, 1, kSlot);
  std::memset(tensor + kSlot, 2, kSlot);
  const std::set<size_t> places = {publish(0, tensor), publish(1, tensor + kSlot),
                                   publish(2, tensor + kSlot / 2)};
  ASSERT_EQ(places.size(), 3u);
  for (auto place = places.begin(), next = std::next(place); next != places.end(); ++place, ++next)
    EXPECT_GE(*next - *place, kSlot);
}

TEST_F(GradientSlotsTest, AnOwnSlotThatATensorHoldsIsNotOverwritten) {
  std::byte* const tensor = allocate();  // A tensor that is not a gradient takes slot 0.
  std::memset(tensor, 3, kSlot);
  const auto elsewhere = filled(9);
  const size_t place = publish(0, elsewhere.data());
  EXPECT_NE(at(place), tensor);
  EXPECT_EQ(static_cast<int>(tensor[0]), 3);
  EXPECT_EQ(std::memcmp(at(place), elsewhere.data(), kSlot), 0);
}

TEST_F(GradientSlotsTest, EveryOrderOfAllocatingAndPublishingKeepsPlacesApart) {
  // Each parameter's gradient lies in a slot, in the slot of another parameter, in a shared one or
  // elsewhere. Between any two of them a tensor is allocated and freed.
  for (int choice = 0; choice < 4 * 4 * 4; ++choice) {
    std::byte* const own = allocate();
    std::set<size_t> places;
    const auto elsewhere = filled(choice);
    std::vector<std::byte*> held;
    for (int index = 0, rest = choice; index < 3; ++index, rest /= 4) {
      std::byte* data = nullptr;
      if (rest % 4 < 2) data = rest % 4 == 0 ? own : allocate();
      if (data != nullptr && data != own) held.push_back(data);
      const void* gradient = data != nullptr ? data : elsewhere.data();
      const size_t place = publish(index, gradient);
      EXPECT_EQ(std::memcmp(at(place), gradient, kSlot), 0);
      EXPECT_TRUE(places.insert(place).second) << "choice " << choice;
      if (rest % 4 == 3)
        for (std::byte* const tensor : std::exchange(held, {})) slots_.give_back(tensor);
      if (std::byte* const temporary = allocate()) {
        EXPECT_FALSE(places.contains(static_cast<size_t>(temporary - at(0))));
        slots_.give_back(temporary);
      }
    }
    for (std::byte* const tensor : held) slots_.give_back(tensor);
    slots_.give_back(own);
    slots_.end_step();
  }
}

}  // namespace
}  // namespace trireme::shared::gradient_slots_test
