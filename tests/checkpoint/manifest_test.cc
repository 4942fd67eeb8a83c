#include <trireme/checkpoint/manifest.h>

#include "checkpoint_testing.h"

namespace trireme::checkpoint::manifest_test {
namespace {

Manifest sample() {
  Manifest manifest;
  manifest.version = "0.1.0";
  manifest.step = 120;
  manifest.position = {3, 1024};
  manifest.aliases = {{"decoder.weight", "encoder.weight"}};
  manifest.optimizer = {{"name", "Adam"}, {"steps", {{"w", 120}}}};
  manifest.config = {{"train", {{"seed", 7}}}};
  manifest.extra = {{"best", 0.5}};
  manifest.files = {{"model.safetensors", "ab"}, {"model-1.safetensors", "cd"}};
  manifest.slices["model-1.safetensors"] = {{"w", {"w", {8, 6}, {4, 0}}},
                                            {"w-2", {"w", {8, 6}, {0, 3}}}};
  manifest.writers = {{"model.safetensors", 0}, {"model-1.safetensors", 4}};
  return manifest;
}

Manifest through_text(const Manifest& manifest) {
  return manifest_from_text(to_text(manifest), "m");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(ManifestText, GivesBackEveryField) {
  const Manifest before = sample(), after = through_text(before);
  EXPECT_EQ(after.format, before.format);
  EXPECT_EQ(after.version, before.version);
  EXPECT_EQ(after.step, before.step);
  EXPECT_EQ(after.position, before.position);
  EXPECT_EQ(after.aliases, before.aliases);
  EXPECT_EQ(after.optimizer, before.optimizer);
  EXPECT_EQ(after.config, before.config);
  EXPECT_EQ(after.extra, before.extra);
  EXPECT_EQ(after.files, before.files);
  EXPECT_EQ(after.slices, before.slices);
  EXPECT_EQ(after.writers, before.writers);
}

TEST(ManifestText, IsJsonWithOneLineForEachField) {
  const std::string text = to_text(sample());
  EXPECT_EQ(Json::parse(text)["position"]["consumed"], 1024);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 14);
}

TEST(ManifestText, KeepsAConfigurationWithAPathThatIsNoUtf8) {
  Manifest manifest = sample();
  manifest.config["data"] = "/data/\xe9t\xe9";
  EXPECT_EQ(through_text(manifest).step, 120);
}

TEST(ManifestText, ANewerFormatIsRefusedByName) {
  Manifest newer = sample();
  newer.format = 4;
  EXPECT_TRUE(
      fails_with(ErrorCode::unsupported, {"format 4", "up to 3"}, [&] { through_text(newer); }));
  const std::string edited = replaced(to_text(sample()), "\"format\": 3", "\"format\": 99");
  EXPECT_TRUE(
      fails_with(ErrorCode::unsupported, {"format 99"}, [&] { manifest_from_text(edited, "m"); }));
}

TEST(ManifestText, AnyFlippedBitIsFound) {
  const std::string whole = to_text(sample());
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string text = whole;
      text[byte] = static_cast<char>(text[byte] ^ (1 << bit));
      const Error error = error_of([&] { manifest_from_text(text, "m"); });
      ASSERT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported)
          << error.what();
    }
  }
}

TEST(ManifestText, AnyTornOneIsFound) {
  const std::string whole = to_text(sample());
  for (size_t size = 0; size < whole.size(); ++size)
    ASSERT_TRUE(fails_with(ErrorCode::corrupt, {"the/manifest.json"}, [&] {
      manifest_from_text(whole.substr(0, size), "the/manifest.json");
    })) << size;
}

TEST(ManifestText, GarbageIsRefused) {
  for (const std::string text :
       {"", "null", "[]", "{}", "{\"format\": \"1\"}", "{\"format\": 1.5}", "{\"format\": 1}",
        "\xff\xfe", "{\"format\": 1}}"})
    EXPECT_TRUE(fails_with(ErrorCode::corrupt, {}, [&] { manifest_from_text(text, "m"); }))
        << text;
  EXPECT_TRUE(fails_with(ErrorCode::corrupt, {},
                         [&] { manifest_from_text(std::string(1'000'000, '['), "m"); }));
}

}  // namespace
}  // namespace trireme::checkpoint::manifest_test
