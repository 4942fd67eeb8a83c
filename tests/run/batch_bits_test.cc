// The batches of records through stages: the same bits for any number of workers and threads, with
// and without a cache.
#include <ATen/ATen.h>
#include <ATen/ops/rand.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <trireme/run/pipeline.h>
#include <map>
#include <string>
#include <vector>

#include "../base/deflated.h"
#include "../records/files.h"
#include "../records/tar_files.h"

namespace trireme::batch_bits_test {
namespace {

using records::Folder;

std::string big_endian(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

std::string png_chunk(const std::string& kind, const std::string& content) {
  const std::string body = kind + content;
  const auto sum =
      ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<uint32_t>(content.size())) + body +
         big_endian(static_cast<uint32_t>(sum));
}

// An image that differs from those of other numbers.
std::string png(int number) {
  constexpr uint32_t kWidth = 18, kHeight = 16;
  std::string rows;
  for (uint32_t y = 0; y < kHeight; ++y) {
    rows += '\0';
    for (uint32_t x = 0; x < 3 * kWidth; ++x)
      rows += static_cast<char>(static_cast<uint32_t>(number) * 37 + y * y * 5 + x * 11);
  }
  const std::string head =
      big_endian(kWidth) + big_endian(kHeight) + std::string("\x08\x02\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", head) +
         png_chunk("IDAT", deflated(rows, MAX_WBITS)) + png_chunk("IEND", "");
}

std::string write_image_folder(const Folder& folder, const std::string& name, int images) {
  for (int i = 0; i < images; ++i)
    folder.write(fmt::format("{}/class {}/{:03}.png", name, i % 3, i), png(i));
  return folder.path(name);
}

std::string write_shards(const Folder& folder) {
  for (int shard = 0; shard < 3; ++shard) {
    std::string members;
    for (int i = 0; i < 15; ++i)
      members += records::tar_member(fmt::format("{:03}.png", i), png(15 * shard + i)) +
                 records::tar_member(fmt::format("{:03}.cls", i), fmt::format("{}", i % 4));
    folder.write(fmt::format("shards/{}.tar", shard), members + records::tar_end());
  }
  return folder.path("shards");
}

std::string write_table(const Folder& folder) {
  std::string rows = "x,z,label\n";
  for (int i = 0; i < 53; ++i) rows += fmt::format("{},{:.1f},{}\n", i, 0.5 * i - 7, i % 3);
  return folder.write("rows.csv", rows);
}

std::string write_documents(const Folder& folder) {
  std::string lines;
  for (int i = 0; i < 90; ++i) {
    std::string tokens;
    for (int at = 0; at < 2 + i * i % 17; ++at)
      tokens += fmt::format("{}{}", at == 0 ? "" : ", ", (i + 3 * at) % 19);
    lines += "{\"tokens\": [" + tokens + "]}\n";
  }
  return folder.write("documents.jsonl", lines);
}

// The shares of all workers, one behind the other.
struct GlobalBatch {
  plan::DataPosition position;
  int64_t targets = 0;
  std::vector<int64_t> indices, left_out;
  std::map<std::string, std::string> forms, bytes;  // By the name of a tensor.
  bool operator==(const GlobalBatch&) const = default;
};

void append(const std::string& name, const at::Tensor& share, GlobalBatch& batch) {
  const at::Tensor rows = share.contiguous();
  batch.bytes[name].append(static_cast<const char*>(rows.const_data_ptr()), rows.nbytes());
  if (share.size(0) == 0) return;
  std::string form = toString(rows.scalar_type());
  for (const int64_t size : rows.sizes().slice(1)) form += fmt::format(" {}", size);
  const std::string& known = batch.forms.emplace(name, form).first->second;
  EXPECT_EQ(form, known) << name;
}

void append(const Batch& share, GlobalBatch& batch) {
  batch.position = share.position;
  batch.targets = share.global_targets;
  batch.indices.insert(batch.indices.end(), share.indices.begin(), share.indices.end());
  batch.left_out.insert(batch.left_out.end(), share.left_out.begin(), share.left_out.end());
  append("data", share.data, batch);
  append("target", share.target, batch);
  for (const auto& [name, tensor] : share.more) append(name, tensor, batch);
}

// The global batches of an epoch and a half, as new processes would load them.
std::vector<GlobalBatch> batches_of(const Pipeline& pipeline, int workers, int threads) {
  auto [train, test, options, input] = pipeline.open(5);
  options.threads = threads;
  std::vector<Loader> loaders;
  for (int rank = 0; rank < workers; ++rank) loaders.emplace_back(train, options, rank, workers);
  const int64_t epoch = loaders[0].batches_per_epoch();
  std::vector<GlobalBatch> batches(static_cast<size_t>(epoch + (epoch + 1) / 2));
  for (GlobalBatch& batch : batches)
    for (Loader& loader : loaders) append(loader.next(), batch);
  return batches;
}

// The first pipeline is the reference, and the others are the same with caches.
void expect_the_same_bits(const std::vector<Pipeline>& pipelines) {
  const std::vector<GlobalBatch> wanted = batches_of(pipelines.at(0), 1, 0);
  ASSERT_GE(wanted.size(), 6U);
  for (size_t i = 0; i < pipelines.size(); ++i) {
    for (int workers = 1; workers <= 8; ++workers) {
      for (const int threads : {0, 1, 3}) {
        const std::vector<GlobalBatch> found = batches_of(pipelines[i], workers, threads);
        ASSERT_EQ(found.size(), wanted.size());
        for (size_t at = 0; at < wanted.size(); ++at)
          ASSERT_TRUE(found[at] == wanted[at])
              << "pipeline " << i << ", " << workers << " workers with " << threads
              << " threads each: batch " << at << " differs";
      }
    }
  }
}

Pipeline all_of(std::string_view format, const std::string& path) {
  return Pipeline(format, path).set("test_fraction", "0");
}

constexpr const char* kRandom =
    "random_crop(10, 2) | flip | colour_jitter(0.3, 0.2) | normalise(0.5, 0.25) | erase";

TEST(BatchBits, OfAnImageFolderAreThoseOfOneWorker) {
  const Folder folder;
  const Pipeline images =
      all_of("image_folder", write_image_folder(folder, "images", 43)).batch(9);
  const std::string mixed = fmt::format("{} | mixup(0.4) | cutmix", kRandom);
  const auto with = [&](const std::string& cache) {
    return images.set("cache_dir", folder.path("caches").string())
        .then("decode | resize(12:14)" + cache)
        .then(mixed);
  };
  expect_the_same_bits({with(""), with(" | cache"), with(" | cache(disk)")});
}

TEST(BatchBits, OfShardsInBlocksAreThoseOfOneWorker) {
  const Folder folder;
  const Pipeline shards =
      all_of("webdataset", write_shards(folder)).shuffle("blocks").set("window", "16").batch(8);
  const Pipeline decoded = shards.then("decode | center_crop(14)");
  expect_the_same_bits({decoded.then("random_resized_crop(8) | flip | normalise"),
                        decoded.cache().then("random_resized_crop(8) | flip | normalise")});
}

TEST(BatchBits, OfATableThroughFunctionsAreThoseOfOneWorker) {
  register_map("with noise", [](Example one, const Draw&) {
    one.data = one.data + at::rand(one.data.sizes());
    return one;
  });
  register_filter("not every seventh",
                  [](const Example& one) { return one.data[0].item<int64_t>() % 7 != 3; });
  const Folder folder;
  const Pipeline rows =
      all_of("csv", write_table(folder)).batch(10).then("filter(not every seventh)");
  expect_the_same_bits(
      {rows.then("random_map(with noise)"), rows.cache().then("random_map(with noise)")});
}

TEST(BatchBits, OfPacksAndPaddedDocumentsAreThoseOfOneWorker) {
  const Folder folder;
  const Pipeline documents = all_of("jsonl", write_documents(folder)).batch(8);
  expect_the_same_bits({documents.pack(24)});
  expect_the_same_bits({documents.bucket(3).pad()});
}

TEST(BatchBits, OfAMixtureAreThoseOfOneWorker) {
  const Folder folder;
  const Pipeline web = all_of("image_folder", write_image_folder(folder, "web", 31)),
                 own = all_of("image_folder", write_image_folder(folder, "own", 14));
  const auto with = [&](const std::string& cache) {
    const std::string stages = fmt::format("decode | resize(12:14){} | {}", cache, kRandom);
    return Pipeline::mix({{2, web.then(stages)}, {1, own.then(stages)}}).then("mixup").batch(9);
  };
  expect_the_same_bits({with(""), with(" | cache")});
}

}  // namespace
}  // namespace trireme::batch_bits_test
