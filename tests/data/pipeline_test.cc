#include <ATen/ATen.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <trireme/base/files.h>
#include <trireme/data/loader.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/data/pipeline/sample_shape.h>
#include <algorithm>
#include <numeric>
#include <set>

#include "../base/expect_error.h"
#include "data_files.h"
#include "made_records.h"

namespace trireme::data {
namespace {

std::shared_ptr<const Source> images_through(const std::string& stages, int64_t size = 10,
                                             int64_t side = 4) {
  return make_pipeline(std::make_shared<MadeImages>(size, side, side),
                       {.stages = parse_stages("data.stages", stages), .classes = 10});
}

Draws draws_of(std::vector<int64_t> samples, int64_t epoch, uint64_t seed) {
  return {std::move(samples), epoch, seed};
}

TEST(Pipeline, WithoutStagesTheRowsAreThoseOfAnImageSource) {
  const MadeImages reader(6, 4, 5);
  ImageTable table{.origin = "made", .count = 6, .channels = 3, .height = 4, .width = 5};
  records::Record record;
  for (int64_t i = 0; i < 6; ++i) {
    reader.read(i, record);
    const auto bytes = record.at("image").bytes;
    for (const std::byte pixel : bytes) table.pixels.push_back(static_cast<uint8_t>(pixel));
    table.labels.push_back(i % 10);
  }
  const ImageSource expected(std::move(table));
  const auto source = make_pipeline(std::make_shared<MadeImages>(6, 4, 5), {});
  const Example rows = source->get_batch({5, 0, 3}), wanted = expected.get_batch({5, 0, 3});
  EXPECT_TRUE(rows.data.equal(wanted.data));
  EXPECT_TRUE(rows.target.equal(wanted.target));
}

TEST(Pipeline, NormalisesEachChannel) {
  const Example plain = images_through("")->get_batch({3});
  const Example row = images_through("normalise(0.5:0.25:0, 0.5:1:2)")->get_batch({3});
  const float means[] = {0.5F, 0.25F, 0}, deviations[] = {0.5F, 1, 2};
  for (int64_t channel = 0; channel < 3; ++channel) {
    const at::Tensor wanted = (plain.data[0][channel] - means[channel]) / deviations[channel];
    EXPECT_TRUE(row.data[0][channel].allclose(wanted, 1e-6, 1e-6));
  }
}

// Stages without a type of their own give bfloat16 as torch rounds the float32 of the same stages.
TEST(Pipeline, RowsOfBfloat16AreThoseOfFloat32RoundedOnce) {
  const Draws draws = draws_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 2, 7);
  for (const std::string stages :
       {"normalise(imagenet{})", "flip | flip_vertically | normalise(0.3, 0.7{})",
        "random_crop(9, 2) | normalise(0.5:0.25:0, 0.5:1:2{})",
        "normalise(imagenet{}) | erase(1, value=0.3)", "flip | normalise(imagenet{}) | cutmix"}) {
    const auto of_type = [&](const std::string& type) {
      std::string text = stages;
      return images_through(text.replace(text.find("{}"), 2, type), 10, 12)->get_batch(draws);
    };
    const Example wide = of_type(""), rows = of_type(", type=bfloat16");
    EXPECT_EQ(rows.data.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(rows.data.equal(wide.data.to(at::kBFloat16))) << stages;
    EXPECT_TRUE(rows.target.equal(wide.target)) << stages;
  }
}

TEST(Pipeline, ALoaderMakesItsOwnTypeOfBfloat16) {
  const auto source = images_through("normalise(imagenet, type=bfloat16)");
  LoaderOptions options{.batch = 10, .shuffle = false};
  const at::Tensor widened = Loader(source, options).next().data;
  options.dtype = at::kBFloat16;
  const at::Tensor rows = Loader(source, options).next().data;
  EXPECT_EQ(rows.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(widened.equal(rows.to(at::kFloat)));
}

TEST(Pipeline, MapsAndEraseBehindThemWorkOnBfloat16) {
  register_map("negative", [](Example one, const Draw&) {
    one.data = -one.data;
    return one;
  });
  const std::string stages = "normalise(type=bfloat16) | map(negative) | erase(1, value=0.3)";
  const at::Tensor rows = images_through(stages)->get_batch({1, 2}).data;
  EXPECT_EQ(rows.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(rows.eq(at::full({}, 0.3F).to(at::kBFloat16)).any().item<bool>());
}

// The text of a stage that changes nothing.
std::string same_map() {
  static const bool is_registered = [] {
    register_map("nothing at all", [](Example one, const Draw&) { return one; });
    return true;
  }();
  return is_registered ? "map(nothing at all)" : "";
}

// A map in front of it makes erase a stage on tensors; without one it works on the row.
TEST(Pipeline, EraseIsTheSameOnRowsAndOnTensors) {
  const Draws draws = draws_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 2, 7);
  for (const std::string type : {"float32", "bfloat16"}) {
    const std::string normalise = "normalise(imagenet, type=" + type + ")";
    const at::Tensor plain = images_through(normalise, 10, 12)->get_batch(draws).data;
    at::Tensor erased_before = images_through(normalise + " | erase(1, scale=0.2:0.4)", 10, 12)
                                   ->get_batch(draws)
                                   .data.ne(plain)
                                   .any(1);
    for (const std::string value : {"0.3", "0.3:-4:5", "random"}) {
      const std::string erase = " | erase(1, scale=0.2:0.4, value=" + value + ")";
      const auto source = images_through(normalise + erase, 10, 12);
      const at::Tensor rows = source->get_batch(draws).data;
      EXPECT_TRUE(rows.equal(
          images_through(normalise + " | " + same_map() + erase, 10, 12)->get_batch(draws).data))
          << value;
      EXPECT_TRUE(source->get_batch(draws_of({4}, 2, 7)).data[0].equal(rows[4])) << value;
      EXPECT_FALSE(source->get_batch(draws_of({4}, 3, 7)).data[0].equal(rows[4])) << value;
      // Each value is in the same boxes.
      const at::Tensor erased = rows.ne(plain).any(1);
      EXPECT_TRUE(erased.equal(std::exchange(erased_before, erased))) << value;
    }
  }
}

TEST(Pipeline, EraseWritesTheNumberOfEachChannel) {
  const at::Tensor plain = images_through("normalise", 10, 12)->get_batch({1, 2, 3}).data;
  const at::Tensor rows =
      images_through("normalise | erase(1, value=5:6:7)", 10, 12)->get_batch({1, 2, 3}).data;
  for (int64_t channel = 0; channel < 3; ++channel) {
    const at::Tensor own = rows.select(1, channel);
    const at::Tensor erased = own.ne(plain.select(1, channel));
    EXPECT_TRUE(erased.any().item<bool>());
    EXPECT_TRUE(own.masked_select(erased).eq(5 + channel).all().item<bool>());
  }
}

TEST(Pipeline, ErasesByIndependentNormalNumbers) {
  const std::string stages = "normalise | erase(1, scale=0.3:0.4, value=random)";
  const at::Tensor rows = images_through(stages, 10, 64)->get_batch({0, 1, 2, 3, 4}).data;
  const at::Tensor plain = images_through("normalise", 10, 64)->get_batch({0, 1, 2, 3, 4}).data;
  const at::Tensor noise = rows.masked_select(rows.ne(plain));
  EXPECT_GT(noise.numel(), 15'000);
  EXPECT_NEAR(noise.mean().item<double>(), 0, 0.03);
  EXPECT_NEAR(noise.std().item<double>(), 1, 0.03);
  const at::Tensor neighbours =
      noise.narrow(0, 1, noise.numel() - 1) * noise.narrow(0, 0, noise.numel() - 1);
  EXPECT_NEAR(neighbours.mean().item<double>(), 0, 0.04);
}

TEST(Pipeline, RefusesNumbersForOtherChannels) {
  const std::vector<std::string> wrong = {"normalise | erase(1, value=1:2)",
                                          "random_crop(4, fill=1:2) | normalise",
                                          "normalise(0.5:0.5)"};
  for (const std::string& stages : wrong) {
    const auto source = images_through(stages);
    EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { source->get_batch({1}); })
                  .find("numbers for 2 channels, and the image has 3"),
              std::string::npos)
        << stages;
    // A pipeline of an image without functions is looked at before it starts.
    EXPECT_NE(message_of(ErrorCode::invalid_argument,
                         [&] {
                           const MadeImages reader(4, 4, 4);
                           const Stages all = parse_stages("data.stages", stages);
                           shape_of_samples(reader, choose_fields(reader.fields(), {}), all, false,
                                            1 << 20);
                         })
                  .find("2 numbers for"),
              std::string::npos)
        << stages;
  }
}

// Its function may change the channels, so only the sample tells.
TEST(Pipeline, RefusesNumbersForOtherChannelsBehindAFunction) {
  const std::string stages = "normalise | " + same_map() + " | erase(1, value=1:2)";
  const auto source = images_through(stages);
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { source->get_batch({1}); })
                .find("numbers for 2 channels, and the image has 3"),
            std::string::npos);
  const MadeImages reader(4, 4, 4);
  EXPECT_EQ(shape_of_samples(reader, choose_fields(reader.fields(), {}),
                             parse_stages("data.stages", stages), false, 1 << 20)
                .size(),
            3U);
}

// A crop that has the size of the image with its frame has but one place.
TEST(Pipeline, ARandomCropHasAFrameOnEachSide) {
  const at::Tensor plain = images_through("")->get_batch({4, 5}).data;
  const auto cropped = [](const std::string& stages) {
    return images_through(stages)->get_batch({4, 5}).data;
  };
  const auto padded = [&](std::vector<int64_t> sides, double value) {
    return at::constant_pad_nd(plain, sides, value);  // Left, right, top, bottom.
  };
  EXPECT_TRUE(cropped("random_crop(6, 1)").equal(padded({1, 1, 1, 1}, 0)));
  EXPECT_TRUE(cropped("random_crop(8:6, 1:2)").equal(padded({1, 1, 2, 2}, 0)));
  EXPECT_TRUE(cropped("random_crop(10:8, 1:2:3:4)").equal(padded({1, 3, 2, 4}, 0)));
  EXPECT_TRUE(cropped("random_crop(10:8, 1:2:3:4, fill=255)").equal(padded({1, 3, 2, 4}, 1)));
  const at::Tensor mirrored = at::reflection_pad2d(plain, {1, 3, 2, 3});
  EXPECT_TRUE(cropped("random_crop(9:8, 1:2:3:3, padding_mode=reflect)").equal(mirrored));
  // The frame of a mirrored image lies as written.
  EXPECT_TRUE(cropped("flip(1) | random_crop(4:7, 1:0:2:0, fill=255)")
                  .equal(at::constant_pad_nd(plain.flip({3}), {1, 2, 0, 0}, 1)));
  EXPECT_TRUE(cropped("flip(1) | random_crop(9:8, 1:2:3:3, padding_mode=reflect)")
                  .equal(at::reflection_pad2d(plain.flip({3}), {1, 3, 2, 3})));
}

TEST(Pipeline, ARandomCropWidensItsFrameWhereTheImageIsTooSmall) {
  const at::Tensor plain = images_through("")->get_batch({4}).data;
  EXPECT_NE(message_of(ErrorCode::invalid_argument,
                       [] { images_through("random_crop(4:6)")->get_batch({4}); })
                .find("pad_if_needed=true"),
            std::string::npos);
  const auto source = images_through("random_crop(4:6, pad_if_needed=true)");
  const at::Tensor wide = at::constant_pad_nd(plain, {2, 2, 0, 0}, 0);
  std::set<int64_t> places;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const at::Tensor rows = source->get_batch(draws_of({4}, 0, seed)).data;
    for (int64_t left = 0; left <= 2; ++left)
      if (rows.equal(wide.narrow(3, left, 6))) places.insert(left);
  }
  EXPECT_EQ(places.size(), 3U);
  EXPECT_TRUE(
      images_through("random_crop(4, pad_if_needed=true)")->get_batch({4}).data.equal(plain));
}

TEST(Pipeline, TheMiddleOfAResizedImageIsThatOfResizeAndCenterCrop) {
  const auto source_of = [](const std::string& stages) {
    return make_pipeline(std::make_shared<MadeImages>(3, 43, 64),
                         {.stages = parse_stages("data.stages", stages)});
  };
  // 64 * 32 / 43 is 47.6, and the longer side is rounded down.
  EXPECT_TRUE(
      source_of("center_of_resized(28)")
          ->get_batch({0, 1, 2})
          .data.equal(source_of("resize(32) | center_crop(28)")->get_batch({0, 1, 2}).data));
}

TEST(Pipeline, FlipsAndCropsAreTheSameForAnyBatch) {
  const auto source =
      images_through("random_crop(4, 2) | flip | flip_vertically(0.3) | normalise");
  const Draws draws = draws_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 3, 11);
  const Example all = source->get_batch(draws);
  for (int64_t i = 0; i < 10; ++i) {
    const Example one = source->get_batch(draws_of({i}, 3, 11));
    EXPECT_TRUE(one.data[0].equal(all.data[i]));
    EXPECT_TRUE(source->get(draws.at(static_cast<size_t>(i))).data.equal(all.data[i]));
  }
  EXPECT_FALSE(
      source->get_batch(draws_of({0, 1, 2, 3}, 4, 11)).data.equal(all.data.slice(0, 0, 4)));
  EXPECT_FALSE(
      source->get_batch(draws_of({0, 1, 2, 3}, 3, 12)).data.equal(all.data.slice(0, 0, 4)));
}

TEST(Pipeline, AFlippedImageIsMirrored) {
  const at::Tensor plain = images_through("")->get_batch({4}).data;
  EXPECT_TRUE(images_through("flip(1)")->get_batch({4}).data.equal(plain.flip({3})));
  EXPECT_TRUE(images_through("flip_vertically(1)")->get_batch({4}).data.equal(plain.flip({2})));
  EXPECT_TRUE(images_through("flip(1) | flip_vertically(1)")
                  ->get_batch({4})
                  .data.equal(plain.flip({2, 3})));
}

TEST(Pipeline, AnotherStageChangesNoRandomNumbers) {
  const Draws draws = draws_of({0, 1, 2, 3, 4, 5, 6, 7}, 0, 5);
  const at::Tensor flipped = images_through("flip | normalise")->get_batch(draws).data;
  const at::Tensor also =
      images_through("random_crop(4) | flip | normalise")->get_batch(draws).data;
  EXPECT_TRUE(flipped.equal(also));  // A crop of the whole image changes nothing.
}

TEST(Pipeline, AFilterLeavesSamplesOut) {
  static const bool is_registered = [] {
    register_filter("even labels",
                    [](const Example& one) { return one.target.item<int64_t>() % 2 == 0; });
    register_filter("nothing", [](const Example&) { return false; });
    return true;
  }();
  EXPECT_TRUE(is_registered);
  const auto source = images_through("normalise | filter(even labels)");
  EXPECT_TRUE(source->leaves_out());
  std::vector<size_t> left_out;
  const Example rows = source->get_kept({7, 4, 1, 2}, left_out);
  EXPECT_EQ(left_out, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(rows.data.size(0), 2);
  EXPECT_EQ(rows.target[0].item<int64_t>(), 4);

  left_out.clear();
  const Example none = source->get_kept({1, 3}, left_out);
  EXPECT_EQ(left_out.size(), 2u);
  EXPECT_EQ(none.data.sizes(), at::IntArrayRef({0, 3, 4, 4}));
  message_of(ErrorCode::invalid_argument, [&] { source->get_batch({1, 3}); });
  const auto empty = images_through("normalise | filter(nothing)");
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { empty->get_kept({1}, left_out); })
                .find("all samples"),
            std::string::npos);
}

TEST(Pipeline, AMapDrawsFromTheNumbersOfItsSample) {
  static const bool is_registered = [] {
    register_map("noise", [](Example one, const Draw&) {
      one.data = one.data + at::rand(one.data.sizes());
      return one;
    });
    return true;
  }();
  EXPECT_TRUE(is_registered);
  const auto source = images_through("normalise | random_map(noise)");
  const Example all = source->get_batch(draws_of({0, 1, 2}, 1, 9));
  EXPECT_TRUE(source->get_batch(draws_of({2}, 1, 9)).data[0].equal(all.data[2]));
  EXPECT_FALSE(source->get_batch(draws_of({2}, 2, 9)).data[0].equal(all.data[2]));
}

// A function that cannot take one of ten samples.
TEST(Pipeline, NamesStageFunctionAndRecordOfAnError) {
  static const bool is_registered = [] {
    register_map("too short", [](Example one, const Draw& draw) {
      if (draw.index == 7) throw std::out_of_range("it has 3 rows");
      return one;
    });
    register_filter("all", [](const Example&) { return true; });
    register_filter("unknown", [](const Example& one) {
      if (one.target.item<int64_t>() == 7)
        throw Error(ErrorCode::unsupported, "own", "a label is unknown", "other labels");
      return true;
    });
    return true;
  }();
  EXPECT_TRUE(is_registered);
  for (const char* const cache : {"", " | cache", " | cache | filter(all)"}) {
    const auto said = [&](ErrorCode code, const std::string& stage) {
      const auto source = images_through("normalise | " + stage + cache);
      source->get_batch({5, 6});
      return message_of(code, [&] { source->get_batch({6, 7}); });
    };
    EXPECT_NE(said(ErrorCode::invalid_argument, "map(too short)")
                  .find("made.bin, record 7: map(too short): the function threw: it has 3 rows; "
                        "try: a function that takes this sample"),
              std::string::npos);
    EXPECT_NE(said(ErrorCode::unsupported, "filter(unknown)")
                  .find("made.bin, record 7: filter(unknown): a label is unknown; try: other "
                        "labels"),
              std::string::npos);
  }
  // Stages that ship know no record either.
  EXPECT_NE(message_of(ErrorCode::invalid_argument,
                       [&] { images_through("normalise(0.5:0.5)")->get_batch({4}); })
                .find("made.bin, record 4: normalise has numbers for 2 channels"),
            std::string::npos);
}

TEST(Pipeline, NamesADamagedRecordOrSkipsIt) {
  auto reader = std::make_shared<MadeImages>(10, 4, 4);
  reader->damaged = {3, 5};
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { make_pipeline(reader, {})->get_batch({1, 3}); })
                .find("made.bin, record 3: the checksum is wrong"),
            std::string::npos);
  const auto source = make_pipeline(reader, {.bad_records = {.skip = true, .most = 2}});
  std::vector<size_t> left_out;
  EXPECT_EQ(source->get_kept({1, 3, 4, 5}, left_out).data.size(0), 2);
  EXPECT_EQ(left_out, (std::vector<size_t>{1, 3}));
  // A record counts once. The form of a batch without samples comes from another record.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(source->get_kept({3}, left_out).data.size(0), 0);
  EXPECT_EQ(source->bad_records(), (std::vector<int64_t>{3, 5}));
  reader->damaged.insert(7);
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { source->get_kept({1, 7}, left_out); })
                .find("data.bad_records"),
            std::string::npos);
}

void register_functions_of_the_document() {
  trireme::register_map("brighter", [](trireme::Example one, const trireme::Draw&) {
    one.data = one.data.mul(1.25).clamp_max(1);
    return one;
  });
  trireme::register_filter(
      "no zeros", [](const trireme::Example& one) { return one.target.item<int64_t>() != 0; });
}

TEST(Pipeline, TheFunctionsOfTheDocumentAreStages) {
  register_functions_of_the_document();
  const auto source = images_through("normalise | map(brighter) | filter(no zeros)");
  std::vector<size_t> left_out;
  const Example rows = source->get_kept({0, 1, 2}, left_out);
  EXPECT_EQ(left_out, (std::vector<size_t>{0}));
  EXPECT_EQ(rows.data.max().item<float>(), 1);
}

// The batch of `ranks` ranks, put together.
Example global_batch(const std::shared_ptr<const Source>& source, int ranks, int64_t batch) {
  std::vector<at::Tensor> data, targets;
  for (int rank = 0; rank < ranks; ++rank) {
    Loader loader(source, {.batch = batch, .seed = 3, .threads = rank}, rank, ranks);
    loader.next();
    const Batch second = loader.next();
    data.push_back(second.data);
    targets.push_back(second.target);
  }
  return {at::cat(data), at::cat(targets)};
}

TEST(Pipeline, MixedBatchesAreTheSameForAnyNumberOfRanks) {
  for (const std::string stages : {"normalise | mixup(0.4)", "normalise | cutmix",
                                   "flip | normalise | mixup | cutmix(0.5)"}) {
    const auto source = images_through(stages, 23, 12);
    const Example alone = global_batch(source, 1, 8);
    EXPECT_EQ(alone.target.sizes(), at::IntArrayRef({8, 10}));
    EXPECT_TRUE(alone.target.sum(1).allclose(at::full({8}, 1.0F)));
    EXPECT_GT(alone.target.gt(0).sum().item<int64_t>(), 8);
    for (const int ranks : {2, 3, 5}) {
      const Example together = global_batch(source, ranks, 8);
      EXPECT_TRUE(together.data.equal(alone.data)) << stages << " on " << ranks;
      EXPECT_TRUE(together.target.equal(alone.target)) << stages << " on " << ranks;
    }
  }
}

// Members of webdataset. Beside an image, tokens may be those of its caption.
TEST(Pipeline, TakesTheMemberOfTokensIfThereIsNothingElse) {
  const records::FieldSpec key{.name = "__key__", .encoded = true},
      text{.name = "txt", .encoded = true}, image{.name = "png", .encoded = true},
      label{.name = "cls", .dtype = plan::DType::int64, .shape = std::vector<int64_t>{}},
      tokens{.name = "tokens.npy"};
  EXPECT_EQ(choose_fields({key, text, tokens}, {}).tokens, "tokens.npy");
  const FieldChoice beside = choose_fields({key, label, image, tokens}, {});
  EXPECT_EQ(beside.tokens, "");
  EXPECT_EQ(beside.image, "png");
  EXPECT_EQ(beside.target, "cls");
}

TEST(Pipeline, RefusesImagesOfSeveralShapes) {
  const std::vector<records::FieldSpec> fields = {
      {.name = "image", .encoded = true},
      {.name = "label", .dtype = plan::DType::int64, .shape = std::vector<int64_t>{}}};
  const FieldChoice choice = choose_fields(fields, {});
  EXPECT_EQ(choice.image, "image");
  EXPECT_EQ(choice.target, "label");
}

TEST(Pipeline, ALoaderKnowsWhatWasLeftOut) {
  auto reader = std::make_shared<MadeImages>(10, 4, 4);
  reader->damaged = {2, 6};
  const auto source = make_pipeline(reader, {.bad_records = {.skip = true}});
  Loader loader(source, {.batch = 10, .shuffle = false});
  const Batch batch = loader.next();
  EXPECT_EQ(batch.indices, (std::vector<int64_t>{0, 1, 3, 4, 5, 7, 8, 9}));
  EXPECT_EQ(batch.left_out, (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(batch.size(), 8);
  EXPECT_EQ(batch.global_used, 10);
  EXPECT_EQ(batch.data.size(0), 8);
}

TEST(Pipeline, ACacheStandsWhereItsSamplesFit) {
  const Folder folder;
  const auto place_with = [&](int64_t bytes) {
    const auto source = make_pipeline(
        std::make_shared<MadeImages>(40, 16, 16),
        {.stages = parse_stages("data.stages", "decode | cache(auto) | flip | normalise"),
         .cache_budget = CacheBudget::of_process(bytes),
         .cache_dir = folder.path()});
    EXPECT_TRUE(source->get_batch({3}).data.equal(source->get_batch({3}).data));
    const auto use = source->cache_use();
    EXPECT_EQ(use.value().samples, 1);
    return use->place;
  };
  EXPECT_EQ(place_with(1 << 20), "memory");
  EXPECT_EQ(place_with(2000), is_in_memory(folder.path()) ? "memory" : "disk");
}

// Records with one and the same file.
class SameFiles : public records::Reader {
 public:
  explicit SameFiles(std::string file) : file_(std::move(file)) {}
  int64_t size() const override { return 4; }
  void read(int64_t, records::Record& record) const override {
    record.clear();
    record.fields.push_back(
        {.name = "image", .bytes = std::as_bytes(std::span(file_)), .encoded = true});
    record.fields.push_back({.name = "label",
                             .bytes = std::as_bytes(std::span(&label_, 1)),
                             .dtype = plan::DType::int64});
  }
  std::string place(int64_t index) const override { return "file " + std::to_string(index); }
  const std::vector<records::FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return file_; }

 private:
  const std::string file_;
  const int64_t label_ = 1;
  const std::vector<records::FieldSpec> fields_{
      {.name = "image", .encoded = true},
      {.name = "label", .dtype = plan::DType::int64, .shape = std::vector<int64_t>{}}};
};

// The beginning of a PNG of 5000 rows with 6000 pixels, which are not there.
std::string png_of_many_pixels() {
  std::string file("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", 16);
  file += std::string("\0\0\x17\x70\0\0\x13\x88\x08\x02\0\0\0", 13);
  return file + std::string(4, '\0');
}

TEST(Pipeline, AnImageBeyondTheMemoryForOneIsRefusedByItsHeader) {
  const auto reader = std::make_shared<SameFiles>(png_of_many_pixels());
  for (const char* const stages :
       {"decode | resize(4:4) | normalise", "decode | random_resized_crop(4) | normalise"}) {
    const auto message_with = [&](int64_t image_bytes) {
      const auto source = make_pipeline(
          reader, {.stages = parse_stages("data.stages", stages), .image_bytes = image_bytes});
      return message_of(ErrorCode::corrupt, [&] { source->get_batch({2}); });
    };
    const std::string refused = message_with(64 << 20);
    for (const char* const part :
         {"file 2", "6000 pixels", "at most 22369621", "raise data.memory_bytes"})
      EXPECT_NE(refused.find(part), std::string::npos) << refused << " has no " << part;
    EXPECT_NE(message_with(6000 * 5000 * 3).find("cut off"), std::string::npos);
    EXPECT_NE(message_with(6000 * 5000 * 3 - 1).find("at most"), std::string::npos);
  }
}

TEST(Pipeline, AnImageIsNotScaledBeyondTheMemoryForOne) {
  const auto source = make_pipeline(
      std::make_shared<MadeImages>(2, 1, 3000),
      {.stages = parse_stages("data.stages", "resize(200) | normalise"), .image_bytes = 64 << 20});
  const std::string message = message_of(ErrorCode::corrupt, [&] { source->get_batch({1}); });
  for (const char* const part : {"1 x 3000", "200 x 600000", "22369621", "data.memory_bytes"})
    EXPECT_NE(message.find(part), std::string::npos) << message << " has no " << part;
}

StageUse use_of(const std::vector<StageUse>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &StageUse::name);
  return found == all.end() ? StageUse{"no " + name, -1, -1, -1} : *found;
}

// Each 16th sample of a thread is measured, and these numbers of samples are multiples of it.
TEST(Pipeline, CountsTheBytesThatEachStageGives) {
  const auto source =
      images_through("decode | resize(8:6) | cache | random_crop(4) | flip | normalise", 32, 16);
  std::vector<int64_t> samples(32);
  std::iota(samples.begin(), samples.end(), 0);
  const Draws all(samples);
  source->get_batch(all);
  source->get_batch(all);
  const std::vector<StageUse> stages = source->stage_use();
  const auto expect_use = [&](const std::string& name, int64_t count, int64_t each) {
    EXPECT_EQ(use_of(stages, name).samples, count) << name;
    EXPECT_EQ(use_of(stages, name).bytes, count * each) << name;
  };
  expect_use("read", 32, 3 * 16 * 16 + 8);
  expect_use("decode", 32, 3 * 16 * 16);
  expect_use("resize", 32, 3 * 8 * 6);
  expect_use("cache", 32, 3 * 8 * 6);
  expect_use("random_crop", 64, 3 * 4 * 4);
  expect_use("flip", 64, 3 * 4 * 4);
  expect_use("normalise", 64, 3 * 4 * 4 * 4);
}

TEST(Pipeline, CountsTheBytesOfTensorsThatAFilterKeeps) {
  register_filter("labels below 5",
                  [](const Example& one) { return one.target.item<int64_t>() < 5; });
  const auto source = images_through("normalise | filter(labels below 5)", 32);
  // A batch of one sample 16 times: it does not matter which one of them is measured.
  const auto bytes_of_batch = [&](int64_t sample) {
    std::vector<size_t> left_out;
    const int64_t before = use_of(source->stage_use(), "filter(labels below 5)").bytes;
    source->get_kept(Draws(std::vector<int64_t>(16, sample)), left_out);
    return use_of(source->stage_use(), "filter(labels below 5)").bytes - before;
  };
  bytes_of_batch(17);  // The first empty batch loads a sample more, for its shape.
  EXPECT_EQ(bytes_of_batch(11), 16 * (3 * 4 * 4 * 4 + 8));
  EXPECT_EQ(bytes_of_batch(17), 0);
}

TEST(Pipeline, CountsTheSamplesThatACacheHas) {
  const auto source = images_through("decode | cache | flip | normalise", 20);
  const auto counts = [&] {
    const CacheUse use = source->cache_use().value();
    return std::pair(use.hits, use.misses);
  };
  EXPECT_EQ(counts(), std::pair(int64_t{0}, int64_t{0}));
  source->get_batch({0, 1, 2, 3, 4, 5, 6});
  EXPECT_EQ(counts(), std::pair(int64_t{0}, int64_t{7}));
  source->get_batch({4, 5, 6, 7, 8});
  EXPECT_EQ(counts(), std::pair(int64_t{3}, int64_t{9}));
  source->get(Draw(8));
  EXPECT_EQ(counts(), std::pair(int64_t{4}, int64_t{9}));
}

TEST(Pipeline, CountsTheSamplesOfACacheAlsoIfABatchFails) {
  auto reader = std::make_shared<MadeImages>(10, 4, 4);
  reader->damaged = {3};
  const auto source =
      make_pipeline(reader, {.stages = parse_stages("data.stages", "decode | cache | normalise")});
  message_of(ErrorCode::corrupt, [&] { source->get_batch({1, 2, 3, 4}); });
  EXPECT_EQ(source->cache_use()->misses, 3);
  source->get_batch({1, 2});
  EXPECT_EQ(source->cache_use()->hits, 2);
}

TEST(Pipeline, KnowsWhatACacheWouldTake) {
  const auto advice =
      images_through("decode | resize(8:8) | random_crop(4) | normalise", 100)->cache_advice();
  ASSERT_TRUE(advice.has_value());
  EXPECT_EQ(advice->after, "resize");
  EXPECT_GE(advice->bytes, 100 * 8 * 8 * 3);
  EXPECT_LE(advice->bytes, 200 * 8 * 8 * 3);
  EXPECT_FALSE(images_through("decode | cache | flip | normalise")->cache_advice());
  EXPECT_FALSE(images_through("flip | normalise")->cache_advice());
}

}  // namespace
}  // namespace trireme::data
