// Thousands of damaged and inconsistent files. Each ends in values or in an Error that names the
// file, never in a crash or an overrun.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/checkpoint/history.h>
#include <trireme/checkpoint/load.h>
#include <trireme/checkpoint/output_file.h>
#include <trireme/checkpoint/pickle.h>
#include <trireme/checkpoint/pieces.h>
#include <trireme/checkpoint/pytorch_file.h>
#include <trireme/checkpoint/safetensors_header.h>
#include <trireme/checkpoint/zip_archive.h>
#include <unistd.h>

#include "old_format.h"
#include "sliced_testing.h"

namespace trireme::checkpoint::fuzz_test {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

std::filesystem::path in_memory() {
  return ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
}

class Fuzz : public SlicedFolder {
 protected:
  Fuzz() : SlicedFolder(in_memory()) { set_log_level(LogLevel::error); }
  ~Fuzz() override { set_log_level(LogLevel::info); }

  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  // Flips bits, cuts, repeats, or inserts text that is difficult for a reader.
  std::string damaged(std::string text) {
    static const std::vector<std::string> kTraps = {"18446744073709551615",
                                                    "9223372036854775807",
                                                    "-1",
                                                    "1e308",
                                                    "[",
                                                    "]",
                                                    "{",
                                                    "}",
                                                    "\"",
                                                    "null",
                                                    "true",
                                                    "0",
                                                    ",",
                                                    ":",
                                                    "\\ud800",
                                                    std::string(1, '\0'),
                                                    std::string(300, '['),
                                                    "9999999999999999999999999999",
                                                    "\"__metadata__\":",
                                                    "[4294967296,4294967296]"};
    const size_t changes = 1 + below(4);
    for (size_t i = 0; i < changes; ++i) {
      const size_t at = below(text.size() + 1),
                   length = below(std::min<size_t>(text.size() - at, 40) + 1);
      switch (below(6)) {
        case 0:
        case 1:
          if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
          break;
        case 2: text.resize(at); break;
        case 3: text.insert(below(text.size() + 1), text.substr(at, length)); break;
        case 4: text.erase(at, length); break;
        default: text.replace(at, length, kTraps[below(kTraps.size())]);
      }
    }
    return text;
  }

  // Runs `read`. An Error that names `name` is allowed; everything else fails the test.
  void ends_well(const std::string& name, const std::function<void()>& read) {
    try {
      read();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal ||
          std::string(error.what()).find(name) == std::string::npos)
        ADD_FAILURE() << error.what();
    }
  }

  // Reads every byte that the views promise, so that an overrun shows under a
  // sanitizer or as a signal.
  static unsigned touch(const std::vector<TensorView>& tensors) {
    unsigned sum = 0;
    for (const auto& tensor : tensors)
      for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
    return sum;
  }

  std::mt19937_64 random_{20};
};

TEST_F(Fuzz, HeadersOfSafetensors) {
  const OwnedTensor a("layer.weight", {3, 4}), b("layer.bias", {4}, plan::DType::float64),
      c("count", {}, plan::DType::int64);
  const std::vector<TensorView> views{a.view(), b.view(), c.view()};
  const std::string header = lay_out(views, {{"format", "pt"}}).header.substr(8);
  for (int round = 0; round < 20'000; ++round) {
    ends_well("file", [&] {
      const uint64_t data = below(8) == 0 ? random_() : 88;
      for (const auto& tensor : parse_header(damaged(header), data, "file").tensors) {
        ASSERT_LE(tensor.begin, tensor.end);
        ASSERT_LE(tensor.end, data);
        ASSERT_EQ(tensor.end - tensor.begin, static_cast<uint64_t>(tensor.spec.bytes()));
      }
    });
  }
}

TEST_F(Fuzz, FilesOfSafetensors) {
  const OwnedTensor a("layer.weight", {3, 4}), b("layer.bias", {4});
  const fs::path path = folder_ / "model.safetensors";
  write_safetensors(path, {a.view(), b.view()});
  const std::string whole = read_file(path);
  unsigned sum = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string text = damaged(whole);
    // Some files get a wrong length.
    if (below(3) == 0)
      for (size_t i = 0; i < std::min<size_t>(8, text.size()); ++i)
        text[i] = static_cast<char>(below(3) == 0 ? random_() : 0);
    overwrite(path, text);
    ends_well(path, [&] { sum += touch(SafetensorsFile(path).tensors()); });
  }
  EXPECT_GT(sum, 0u);
}

Manifest manifest_with_every_field() {
  Manifest manifest;
  manifest.step = 5;
  manifest.slices[kModelFile] = {{"w", {"w", {8, 6}, {4, 0}}}};
  manifest.writers = {{kModelFile, 3}};
  manifest.aliases = {{"a", "b"}};
  manifest.extra = {{"evaluation", {{"loss", 0.5}}}};
  manifest.files = {{kModelFile, "xxh3-256k:00"}, {kOptimizerFile, "xxh3-256k:00"}};
  return manifest;
}

Json fields_of_old_format(int format) {
  const double infinity = std::numeric_limits<double>::infinity();
  return fields_of_format(format, Json::parse(to_text(manifest_with_every_field())),
                          {0.5, -1e-300, infinity, std::nan(""), 3});
}

// Manifests are sealed again, so that their wrong values are read.
TEST_F(Fuzz, Manifests) {
  const std::string newest = to_text(manifest_with_every_field());
  const std::string bodies[kNewestFormat] = {without_last_brace(fields_of_old_format(1)),
                                             without_last_brace(fields_of_old_format(2)),
                                             newest.substr(0, newest.rfind(",\n  \"sha256\""))};
  int read[kNewestFormat] = {};
  for (int round = 0; round < 10'000; ++round) {
    const int format = round % kNewestFormat;
    const std::string& body = bodies[format];
    ends_well("file", [&] {
      const Manifest manifest = manifest_from_text(sealed(damaged(body)), "file");
      for (const char* measure : {"loss", "rmse"}) evaluated(manifest, measure);
      ++read[format];
    });
    ends_well("file", [&] { manifest_from_text(damaged(sealed(body)), "file"); });
  }
  for (const int count : read) EXPECT_GT(count, 50);
}

// The seals of these manifests are right, only their losses may be something else.
TEST_F(Fuzz, LossesThatLie) {
  Json fields = fields_of_old_format(1);
  const std::string losses = fields["loss_history"].dump();
  int read = 0;
  for (int round = 0; round < 4'000; ++round) {
    const Json lie = Json::parse(damaged(losses), nullptr, /*allow_exceptions=*/false);
    if (lie.is_discarded()) continue;
    fields["format"] = 1 + round % 2;
    fields["loss_history"] = lie;
    std::string text;
    try {
      text = sealed(without_last_brace(fields));
    } catch (const Json::exception&) {
      continue;  // It is no UTF-8.
    }
    ends_well("file", [&] {
      const std::vector<double> told = manifest_from_text(text, "file").loss_history;
      ASSERT_TRUE(lie.is_array()) << lie;
      ASSERT_EQ(told.size(), lie.size());
      for (size_t i = 0; i < told.size(); ++i) {
        if (lie[i].is_number()) {
          EXPECT_EQ(told[i], lie[i].get<double>());
        } else {
          EXPECT_THAT(lie[i].get<std::string>(), AnyOf("nan", "-nan", "inf", "-inf"));
        }
      }
      ++read;
    });
  }
  EXPECT_GT(read, 100);
}

// The seals of these manifests and the digests are right, only what they say about slices is not.
TEST_F(Fuzz, SlicesThatLie) {
  Folder folder(runs_);
  const fs::path path = save_sliced(folder, 5, 3);
  Json fields = Json::parse(read_file(path / kManifestFile));
  fields.erase("sha256");
  const std::string slices = fields["slices"].dump();
  int opened = 0;
  for (int round = 0; round < 4'000; ++round) {
    const Json lie = Json::parse(damaged(slices), nullptr, /*allow_exceptions=*/false);
    if (lie.is_discarded()) continue;
    fields["slices"] = lie;
    try {
      write_manifest(path, fields);
    } catch (const Json::exception&) {
      continue;  // It is no UTF-8.
    }
    ends_well(path, [&] {
      const Saved saved = open_checkpoint(path);
      std::vector<std::byte> memory;
      for (const char* const kind : {kModelFile, kOptimizerFile})
        for (const StoredTensor& tensor : catalogue_of(saved, kind))
          EXPECT_EQ(assemble(tensor, memory).size(), static_cast<size_t>(tensor.spec.bytes()));
      SliceReader reader(path);
      const auto slice = slice_of("w", {8, 6}, 0, 1, 2);
      std::vector<std::byte> place(96);
      try {
        reader.read({{slice, place}});
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;  // It lies about the name.
      }
      ++opened;
    });
  }
  EXPECT_GT(opened, 0);
}

TEST_F(Fuzz, FilesOfSlices) {
  Folder folder(runs_);
  const fs::path path = save_sliced(folder, 5, 3);
  const std::vector<std::string> names = names_in(path);
  for (int round = 0; round < 1'500; ++round) {
    const fs::path file = path / names[below(names.size())];
    const std::string whole = read_file(file);
    overwrite(file, damaged(whole));
    ends_well(path, [&] {
      SliceReader reader(path);
      EXPECT_TRUE(reads_right(reader, static_cast<int>(below(2)), 2)) << file;
    });
    overwrite(file, whole);
  }
}

TEST_F(Fuzz, PicklesAndArchivesOfPytorch) {
  const OwnedTensor a("layer.weight", {3, 4}), b("layer.bias", {4}, plan::DType::float64);
  const fs::path path = folder_ / "model.pt";
  write_pytorch(path, {a.view(), b.view()});
  const std::string whole = read_file(path);
  const auto pickle_bytes = ZipReader(path).read("archive/data.pkl");
  const std::string pickle(reinterpret_cast<const char*>(pickle_bytes.data()),
                           pickle_bytes.size());
  size_t tensors = 0;
  for (int round = 0; round < 3'000; ++round) {
    if (below(2) == 0) {
      overwrite(path, damaged(whole));
    } else {
      // The checksums of this file are right.
      OutputFile file(disk(), path);
      ZipWriter zip(file);
      const std::string lie = damaged(pickle);
      zip.add("archive/data.pkl", std::as_bytes(std::span(lie)));
      zip.add("archive/data/0", a.bytes);
      zip.add("archive/data/1", b.bytes);
      zip.finish();
    }
    ends_well(path, [&] { tensors += read_pytorch(path).size(); });
  }
  EXPECT_GT(tensors, 100u);
}

class FuzzedFolder : public Fuzz {
 protected:
  // Damages the checkpoint in every case.
  void harm(const fs::path& checkpoint) {
    const std::vector<std::string> names = names_in(checkpoint);
    const fs::path file = checkpoint / names[below(names.size())];
    const std::string whole = read_file(file);
    switch (below(7)) {
      case 0: fs::remove(file); break;
      case 1:
        fs::remove(file);
        fs::create_directory(file);
        break;
      case 2:
        fs::remove(file);
        fs::create_symlink("nowhere", file);
        break;
      case 3:
        fs::remove(file);
        ::mkfifo(file.c_str(), 0600);
        break;
      case 4: fs::resize_file(file, below(whole.size())); break;
      case 5:
        overwrite(file, std::string(whole.size(), '\0'));
        // A disk that lost the bytes leaves such a file.
        break;
      default: {
        std::string text = whole;
        while (text == whole) text = damaged(whole);
        overwrite(file, text);
      }
    }
  }
};

TEST_F(FuzzedFolder, TheNewestWholeOneIsChosenAndEachDamagedOneNamed) {
  {
    Folder folder(runs_, {.keep = 3});
    for (const int step : {10, 20, 30}) save(folder, step);
  }
  // Several versions may have saved into one folder, so each checkpoint has a format of its own.
  const auto whole = [&](int format) { return folder_ / fmt::format("whole-{}", format); };
  for (int format = 1; format <= kNewestFormat; ++format) {
    fs::copy(runs_, whole(format), fs::copy_options::recursive);
    for (const int step : {10, 20, 30})
      if (format < kNewestFormat)
        turn_into_format(format, whole(format) / fmt::format("step-{:09}", step));
  }
  for (int round = 0; round < 1'000; ++round) {
    std::vector<int> harmed;
    for (const int step : {10, 20, 30}) {
      const std::string name = fmt::format("step-{:09}", step);
      fs::remove_all(runs_ / name);
      const int format = 1 + static_cast<int>(below(kNewestFormat));
      fs::copy(whole(format) / name, runs_ / name, fs::copy_options::recursive);
      if (below(2) == 0) continue;
      harm(runs_ / name);
      harmed.push_back(step);
    }
    int expected = 0;
    for (const int step : {10, 20, 30})
      if (std::find(harmed.begin(), harmed.end(), step) == harmed.end()) expected = step;
    std::vector<float> weight(64);
    const Place place = [&](const Saved& saved) {
      const TensorView* w = saved.model->find("w");
      if (w == nullptr || w->spec.shape != std::vector<int64_t>{64})
        throw Error(ErrorCode::invalid_argument, "test", "another model");
      return std::vector<Destination>{{w, std::as_writable_bytes(std::span(weight))}};
    };
    try {
      ASSERT_EQ(newest_in(runs_)->manifest.step, expected) << "round " << round;
      const Manifest loaded = load_newest(runs_, place)->manifest;
      ASSERT_EQ(loaded.step, expected) << "round " << round;
      ASSERT_EQ(weight[1], static_cast<float>(expected + 1));
      ASSERT_EQ(loaded.loss_history, std::vector<double>(static_cast<size_t>(expected), 0.5));
    } catch (const Error& error) {
      // A manifest whose format number grew looks like that of a newer version. To continue from
      // an older checkpoint would lose work.
      if (error.code() == ErrorCode::unsupported &&
          std::string(error.what()).find("has format") != std::string::npos)
        continue;
      ASSERT_EQ(expected, 0) << error.what();
      ASSERT_EQ(error.code(), ErrorCode::corrupt) << error.what();
      for (const int step : harmed)
        ASSERT_THAT(error.what(), HasSubstr(fmt::format("step-{:09}", step)));
    }
  }
}

}  // namespace
}  // namespace trireme::checkpoint::fuzz_test
