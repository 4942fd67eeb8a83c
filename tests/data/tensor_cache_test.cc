// Caches of tensors: the stage `cache` behind normalise, map and filter.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <trireme/base/built_with.h>
#include <trireme/base/error.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/kept_tensors.h>
#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/data/pipeline/sample_cache.h>
#include <trireme/data/sample_types.h>
#include <trireme/images/decode.h>
#include <unistd.h>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "../base/expect_error.h"
#include "data_files.h"
#include "made_documents.h"
#include "made_records.h"

namespace trireme::data::tensor_cache_test {
namespace {

void register_functions() {
  static const bool is_done = [] {
    register_map("twice", [](Example one, const Draw&) {
      one.data = one.data.mul(2);
      return one;
    });
    register_map("twice in place", [](Example one, const Draw&) {
      one.data.mul_(2);
      return one;
    });
    register_map("with more", [](Example one, const Draw& draw) {
      one.more.emplace("half", one.data.to(at::kHalf));
      one.more.emplace("index", at::full({}, draw.index, at::kInt));
      one.more.emplace("none", at::empty({3, 0}, at::kBool));
      return one;
    });
    register_map("draw", [](Example one, const Draw& draw) {
      one.data = at::full({2}, static_cast<int64_t>(draw.seed % 1000) + draw.epoch, at::kLong);
      one.more.emplace("random", at::rand({2}));
      return one;
    });
    register_map("noisy", [](Example one, const Draw&) {
      one.data = one.data + at::rand(one.data.sizes());
      return one;
    });
    register_filter("even targets",
                    [](const Example& one) { return one.target.item<int64_t>() % 2 == 0; });
    return true;
  }();
  EXPECT_TRUE(is_done);
}

std::shared_ptr<const Source> images_through(const std::string& stages,
                                             PipelineOptions options = {}) {
  register_functions();
  options.stages = parse_stages("data.stages", stages);
  options.classes = 10;
  return make_pipeline(std::make_shared<MadeImages>(12, 8, 9), std::move(options));
}

struct Kept {
  Example rows;
  std::vector<size_t> left_out;
};
Kept load(const Source& source, int64_t epoch = 1) {
  Kept kept;
  kept.rows = source.get_kept({{5, 0, 3, 11, 4}, epoch, 9}, kept.left_out);
  return kept;
}

void expect_same(const Kept& one, const Kept& other, const std::string& what) {
  EXPECT_EQ(one.left_out, other.left_out) << what;
  EXPECT_EQ(one.rows.data.scalar_type(), other.rows.data.scalar_type()) << what;
  EXPECT_TRUE(at::equal(one.rows.data, other.rows.data)) << what;
  EXPECT_TRUE(at::equal(one.rows.target, other.rows.target)) << what;
  ASSERT_EQ(one.rows.more.size(), other.rows.more.size()) << what;
  for (const auto& [name, tensor] : one.rows.more) {
    EXPECT_EQ(tensor.scalar_type(), other.rows.more.at(name).scalar_type()) << what;
    EXPECT_TRUE(at::equal(tensor, other.rows.more.at(name))) << what << " " << name;
  }
}

TEST(TensorCache, ChangesNoBitsBehindAnyDeterministicStage) {
  for (const std::string stages :
       {"decode | center_crop(6) | normalise(imagenet) | cache",
        "normalise(imagenet, type=bfloat16) | cache | erase(1, value=0.3)",
        "normalise | map(twice) | cache | random_map(noisy)",
        "normalise | map(with more) | cache | map(twice in place)",
        "normalise | filter(even targets) | cache | map(twice)",
        "normalise | cache | filter(even targets)",
        "normalise | map(twice) | cache | erase | mixup"}) {
    std::string without = stages;
    without.erase(without.find("cache"), without.ends_with("cache") ? 5 : 8);
    if (without.ends_with("| ")) without.resize(without.size() - 2);
    const Kept plain = load(*images_through(without));
    const auto source = images_through(stages);
    for (int time = 0; time < 3; ++time) expect_same(load(*source), plain, stages);
    EXPECT_GE(source->cache_use()->hits, 10) << stages;
    // One sample, in an epoch that the cache has not seen.
    EXPECT_TRUE(at::equal(load(*source, 7).rows.data, load(*images_through(without), 7).rows.data))
        << stages;
  }
}

TEST(TensorCache, KeepsSamplesOfDifferentLengths) {
  register_functions();
  const auto source_through = [](const std::string& stages) {
    return make_pipeline(
        std::make_shared<MadeDocuments>(std::vector<int64_t>{3, 9, 2, 5, 7}),
        {.stages = parse_stages("data.stages", stages), .fields = {"", "", true}});
  };
  const Example plain = source_through("pad(4)")->get_batch({4, 0, 1, 3});
  const auto source = source_through("cache | pad(4)");
  for (int time = 0; time < 2; ++time) {
    const Example rows = source->get_batch({4, 0, 1, 3});
    EXPECT_TRUE(at::equal(rows.data, plain.data));
    EXPECT_TRUE(at::equal(rows.target, plain.target));
    EXPECT_TRUE(at::equal(rows.more.at("lengths"), plain.more.at("lengths")));
  }
  EXPECT_EQ(source->cache_use()->hits, 4);
}

// The samples that fill a cache in epoch 3 of a resumed run are those of epoch 0.
TEST(TensorCache, AMapInFrontOfItKnowsTheNumberOfTheSampleAlone) {
  const auto early = images_through("normalise | map(draw) | cache");
  const auto late = images_through("normalise | map(draw) | cache");
  const Kept first = load(*early, 0);
  std::vector<size_t> left_out;
  const Example other = late->get_kept({{5, 0, 3, 11, 4}, 3, 77}, left_out);
  expect_same({other, left_out}, first, "another epoch and seed");
  EXPECT_FALSE(at::equal(first.rows.data[0], first.rows.data[1]));
}

TEST(TensorCache, CountsWhatItKeeps) {
  const auto source = images_through("normalise | filter(even targets) | cache");
  load(*source);
  load(*source);
  const CacheUse use = source->cache_use().value();
  EXPECT_EQ(use.samples, 5);  // Also those that the filter leaves out: 5, 3 and 11.
  EXPECT_EQ(use.hits, 5);
  EXPECT_EQ(use.misses, 5);
  EXPECT_GE(use.bytes, 2 * 3 * 8 * 9 * 4);
}

TEST(TensorCache, ADamagedRecordIsNoSampleOfIt) {
  register_functions();
  auto reader = std::make_shared<MadeImages>(10, 4, 4);
  reader->damaged = {3};
  const auto source = make_pipeline(
      reader,
      {.stages = parse_stages("data.stages", "normalise | cache"), .bad_records = {.skip = true}});
  for (int time = 0; time < 2; ++time) {
    std::vector<size_t> left_out;
    EXPECT_EQ(source->get_kept({2, 3, 4}, left_out).data.size(0), 2);
    EXPECT_EQ(left_out, std::vector<size_t>{1});
  }
  EXPECT_EQ(source->cache_use()->samples, 2);
}

TEST(TensorCache, OnADiskNeedsVersionsOfFunctions) {
  const Folder folder;
  for (const std::string stages : {"normalise | map(twice) | cache(disk)",
                                   "normalise | filter(even targets) | cache(disk)"}) {
    const std::string message = message_of(ErrorCode::invalid_argument, [&] {
      images_through(stages, {.cache_dir = folder.path()});
    });
    for (const char* const part : {"has no version", "register_map()", "cache(memory)"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  // A function behind the cache, or none, needs no version.
  for (const std::string stages :
       {"normalise | cache(disk) | map(twice)", "normalise(type=bfloat16) | cache(disk)"}) {
    images_through(stages, {.cache_dir = folder.path()})->get_batch({1, 2});
    const auto again = images_through(stages, {.cache_dir = folder.path()});
    EXPECT_TRUE(
        at::equal(again->get_batch({1, 2}).data, images_through(stages)->get_batch({1, 2}).data));
    EXPECT_EQ(again->cache_use()->hits, 2);
  }
}

// The tensors of a batch are views of the file until they are stacked.
TEST(TensorCache, ABatchIsRightIfTheFileIsCutMeanwhile) {
  register_functions();
  const Folder folder;
  const auto source = [&](const std::string& stages) {
    return make_pipeline(std::make_shared<MadeImages>(12, 96, 96),
                         {.stages = parse_stages("data.stages", stages),
                          .classes = 10,
                          .cache_dir = folder.path()});
  };
  const at::Tensor expected = source("normalise")->get_batch({5, 0, 3, 11, 4}).data;
  for (int time = 0; time < 40; ++time) {
    const auto cached = source("normalise | cache(disk)");
    cached->get_batch({5, 0, 3, 11, 4});
    std::filesystem::path file;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      if (entry.path().extension() == ".cache") file = entry.path();
    std::jthread cut([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(37 * time));
      std::filesystem::resize_file(file, 5000);
    });
    for (int batch = 0; batch < 8; ++batch)
      ASSERT_TRUE(at::equal(cached->get_batch({5, 0, 3, 11, 4}).data, expected)) << time;
  }
}

TEST(TensorCache, ThatMayStandOnADiskStaysInMemoryWithoutVersions) {
  const Folder folder;
  const auto source =
      images_through("normalise | map(twice) | cache(auto)",
                     {.cache_budget = CacheBudget::of_process(5000), .cache_dir = folder.path()});
  source->get_batch({1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(source->cache_use()->place, "memory");
  EXPECT_TRUE(source->cache_use()->is_full);
}

// The samples of a job that has another version of the function.
int64_t hits_of_a_job(const std::filesystem::path& folder, const std::string& version) {
  const pid_t child = fork();
  if (child == 0) {
    register_map("versioned", [](Example one, const Draw&) { return one; }, version);
    const auto source = make_pipeline(
        std::make_shared<MadeImages>(12, 8, 9),
        {.stages = parse_stages("data.stages", "normalise | map(versioned) | cache(disk)"),
         .cache_dir = folder});
    source->get_batch({1, 2, 3});
    _exit(static_cast<int>(source->cache_use()->hits));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(TensorCache, AnotherVersionOfAFunctionMakesTheSamplesAnew) {
  const Folder folder;
  EXPECT_EQ(hits_of_a_job(folder.path(), "1"), 0);
  EXPECT_EQ(hits_of_a_job(folder.path(), "1"), 3);
  EXPECT_EQ(hits_of_a_job(folder.path(), "2"), 0);
  EXPECT_EQ(hits_of_a_job(folder.path(), "1"), 3);
}

// After an upgrade a cache on a disk must not give the pixels of an older library.
TEST(SampleCache, IsNotThatOfOtherVersions) {
  const std::string versions = versions_of_samples();
  for (const std::string& part : {std::string("samples 5"), std::string(libtorch_of_build()),
                                  images::versions_of_decoders()})
    EXPECT_NE(versions.find(part), std::string::npos) << versions;
  const MadeImages reader(12, 8, 9);
  std::set<std::string> keys;
  for (const char* const stages :
       {"decode | resize(4) | cache(disk)", "normalise | cache(disk)"}) {
    const PipelineOptions options{.stages = parse_stages("data.stages", stages)};
    const Program program(options.stages, choose_fields(reader.fields(), {}), kMostOfImage);
    keys.insert(key_of_cache(reader, program, options));
    EXPECT_TRUE(keys.contains(key_of_cache(reader, program, options, versions)));
    keys.insert(key_of_cache(reader, program, options, versions + "1"));
  }
  EXPECT_EQ(keys.size(), 4u);
}

Example example_of_all_types() {
  Example all{at::rand({3, 4}), at::full({}, 7, at::kLong)};
  for (const at::ScalarType type : kSampleTypes)
    all.more.emplace(c10::toString(type), at::randint(0, 2, {2, 1, 3}).to(type));
  return all;
}

TEST(KeptTensors, GiveBackAllTypesAndNames) {
  const Example all = example_of_all_types();
  const std::vector<std::byte> bytes = bytes_of_tensors(all);
  for (const bool as_views : {false, true}) {
    const auto kept = tensors_in(bytes, as_views);
    ASSERT_TRUE(kept.has_value());
    EXPECT_FALSE(kept->is_left_out);
    expect_same({kept->example, {}}, {all, {}}, "as views or not");
  }
  EXPECT_TRUE(tensors_in(bytes_of_left_out(), true)->is_left_out);
  // A transposed view is kept as it looks.
  const Example turned{all.data.t(), all.target};
  EXPECT_TRUE(at::equal(tensors_in(bytes_of_tensors(turned), true)->example.data, all.data.t()));
}

TEST(KeptTensors, LeaveOutWhatIsNoPlainMemory) {
  EXPECT_TRUE(bytes_of_tensors({at::rand({2}), at::Tensor()}).empty());
  EXPECT_TRUE(bytes_of_tensors({at::eye(3).to_sparse(), at::rand({2})}).empty());
}

TEST(KeptTensors, DamagedBytesGiveNothingOrTensorsInside) {
  const std::vector<std::byte> bytes = bytes_of_tensors(example_of_all_types());
  for (size_t end = 0; end < bytes.size(); ++end)
    EXPECT_FALSE(tensors_in(std::span(bytes).first(end), true).has_value()) << end;
  uint64_t state = 1;
  for (int time = 0; time < 20'000; ++time) {
    std::vector<std::byte> damaged = bytes;
    for (int changes = 0; changes < 3; ++changes) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      damaged[(state >> 33) % (time % 2 == 0 ? damaged.size() : 200)] =
          static_cast<std::byte>(state >> 24);
    }
    const auto kept = tensors_in(damaged, true);
    if (!kept || kept->is_left_out) continue;
    EXPECT_LE(bytes_of(kept->example), static_cast<int64_t>(damaged.size()));
  }
}

}  // namespace
}  // namespace trireme::data::tensor_cache_test
