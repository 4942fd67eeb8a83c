#include <gtest/gtest.h>

#include <trireme/data/pipeline/stage.h>

#include "../base/expect_error.h"

namespace trireme::data {
namespace {

std::string refusal(const std::string& text, SampleForm first = SampleForm::record) {
  return message_of(ErrorCode::invalid_argument,
                    [&] { check_forms("data.stages", parse_stages("data.stages", text), first); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Stages, ReadsNamesAndValues) {
  const Stages stages =
      parse_stages("data.stages",
                   " decode | random_resized_crop(224:160, ratio=1:2)|flip | normalise(imagenet)");
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[1].numbers("size"), (std::vector<double>{224, 160}));
  EXPECT_EQ(stages[1].numbers("scale"), (std::vector<double>{0.08, 1}));
  EXPECT_EQ(stages[1].numbers("ratio"), (std::vector<double>{1, 2}));
  EXPECT_EQ(stages[2].number("p"), 0.5);
  EXPECT_EQ(stages[3].numbers("std"), (std::vector<double>{0.229, 0.224, 0.225}));
}

TEST(Stages, WritesWhatItReads) {
  for (const std::string text :
       {"decode", "decode(1) | flip(0.25)", "decode | random_crop(32, 4) | normalise(0.5, 0.25)",
        "decode | random_resized_crop(32, ratio=1:1)", "map(lower) | filter(long)",
        "decode | cache(disk) | erase(p=1)", "decode_record(letters, 3:32:32) | map(lower)",
        "decode | normalise(imagenet, type=bfloat16)", "normalise | erase(1, value=random)",
        "normalise | erase(value=0.1:0.2:-0.3)", "colour_jitter(0.5:1.5, 2, hue=-0.1:0.2)",
        "random_crop(32, 1:2:3:4, fill=10:20:30)",
        "random_crop(32, 4, true, padding_mode=reflect)"}) {
    const std::string once = describe(parse_stages("data.stages", text));
    EXPECT_EQ(describe(parse_stages("data.stages", once)), once);
    EXPECT_EQ(to_json(parse_stages("data.stages", once)),
              to_json(parse_stages("data.stages", text)));
  }
  EXPECT_EQ(describe(parse_stages("data.stages", "decode(1)|flip(p=0.5)")), "decode(1) | flip");
}

TEST(Stages, NamesWhatIsWrong) {
  EXPECT_TRUE(has(refusal("decod"), "decode"));
  EXPECT_TRUE(has(refusal("decode |"), "without a name"));
  EXPECT_TRUE(has(refusal("decode | flip(1.5)"), "must lie in 0 to 1"));
  EXPECT_TRUE(has(refusal("decode | flip(half)"), "not a number"));
  EXPECT_TRUE(has(refusal("decode | flip(0.5, 0.5)"), "too many"));
  EXPECT_TRUE(has(refusal("decode | flip(probability=1)"), "no parameter"));
  EXPECT_TRUE(has(refusal("decode | resize"), "needs size"));
  EXPECT_TRUE(has(refusal("decode | resize(0)"), "must lie"));
  EXPECT_TRUE(has(refusal("decode | resize(1.5)"), "whole"));
  EXPECT_TRUE(has(refusal("decode | resize(32"), "no bracket"));
  EXPECT_TRUE(has(refusal("decode | random_resized_crop(32, scale=1:0.5)"), "least"));
  EXPECT_TRUE(has(refusal("decode | random_resized_crop(scale=0.5:1, 32)"), "without a name"));
  EXPECT_TRUE(has(refusal("decode | resize(8, size=9)"), "twice"));
  EXPECT_TRUE(has(refusal("decode | normalise(type=half)"), "float32 or bfloat16"));
  EXPECT_TRUE(has(refusal("decode_record(letters)"), "needs shape"));
  EXPECT_TRUE(has(refusal("decode_record(letters, 3:0)"), "must lie"));
  EXPECT_TRUE(has(refusal("decode_record(letters, 1.5)"), "whole"));
}

TEST(Stages, OfImagesTakeNumbersRangesAndWords) {
  const Stages stages = parse_stages(
      "data.stages",
      "colour_jitter(0.5:1.5, contrast=2, hue=-0.1:0.2) | random_crop(8, 1:2, fill=7:8:9) | "
      "random_crop(8, padding_mode=edge, pad_if_needed=true) | erase(value=random) | "
      "erase(value=1:2:3)");
  EXPECT_EQ(stages[0].numbers("brightness"), (std::vector<double>{0.5, 1.5}));
  EXPECT_EQ(stages[0].numbers("contrast"), (std::vector<double>{2}));
  EXPECT_EQ(stages[0].numbers("hue"), (std::vector<double>{-0.1, 0.2}));
  EXPECT_EQ(stages[1].numbers("padding"), (std::vector<double>{1, 2}));
  EXPECT_EQ(stages[1].numbers("fill"), (std::vector<double>{7, 8, 9}));
  EXPECT_EQ(stages[1].word("padding_mode"), "constant");
  EXPECT_EQ(stages[2].word("padding_mode"), "edge");
  EXPECT_EQ(stages[2].word("pad_if_needed"), "true");
  EXPECT_EQ(stages[3].word("value"), "random");
  EXPECT_TRUE(stages[3].numbers("value").empty());
  EXPECT_EQ(to_json(stages)[3].at("value"), "random");
  EXPECT_EQ(stages[4].numbers("value"), (std::vector<double>{1, 2, 3}));
}

TEST(Stages, OfImagesRefuseWhatTheyCannotDo) {
  const auto of_image = [](const std::string& text) { return refusal(text, SampleForm::image); };
  EXPECT_TRUE(has(of_image("colour_jitter(-0.1)"), "must lie in 0"));
  EXPECT_TRUE(has(of_image("colour_jitter(1.5:0.5)"), "0.5:1.5"));
  EXPECT_TRUE(has(of_image("colour_jitter(0.1:0.2:0.3)"), "3 numbers"));
  EXPECT_TRUE(has(of_image("colour_jitter(hue=0.6)"), "must lie in -0.5 to 0.5"));
  EXPECT_TRUE(has(of_image("colour_jitter(hue=-0.1)"), "-0.1:0.1"));
  EXPECT_TRUE(has(of_image("random_crop(8, 1:2:3)"), "left:top:right:bottom"));
  EXPECT_TRUE(has(of_image("random_crop(8, 1.5)"), "whole"));
  EXPECT_TRUE(has(of_image("random_crop(8, fill=256)"), "must lie in 0 to 255"));
  EXPECT_TRUE(
      has(of_image("random_crop(8, padding_mode=wrap)"), "constant, edge, reflect or symmetric"));
  EXPECT_TRUE(has(of_image("random_crop(8, pad_if_needed=1)"), "true or false"));
  EXPECT_TRUE(has(of_image("random_crop(8, fill=9, padding_mode=edge)"), "or no fill"));
  EXPECT_TRUE(has(of_image("normalise | erase(value=noise)"), "random"));
  EXPECT_TRUE(has(of_image("normalise(type=half)"), "float32 or bfloat16"));
  EXPECT_TRUE(has(of_image("cache(tape)"), "memory, disk or auto"));
}

TEST(Stages, FitTogetherOrAreRefused) {
  EXPECT_TRUE(has(refusal("flip"), "decode | flip"));
  EXPECT_TRUE(has(refusal("decode | erase"), "normalise | erase"));
  EXPECT_TRUE(has(refusal("decode | flip | cache"), "random"));
  EXPECT_TRUE(has(refusal("decode | normalise | erase | cache"), "cache in front of erase"));
  EXPECT_TRUE(has(refusal("normalise | random_map(f) | cache", SampleForm::image), "random_map"));
  EXPECT_TRUE(has(refusal("cache"), "decode | cache"));
  EXPECT_TRUE(has(refusal("decode | cache | normalise | cache"), "two stages cache"));
  EXPECT_TRUE(has(refusal("pad | cache", SampleForm::tensors), "cache in front of pad"));
  EXPECT_TRUE(has(refusal("decode | normalise | cache | flip"), "from cache"));
  EXPECT_TRUE(has(refusal("decode | normalise | mixup | map(f)"), "whole batches"));
  EXPECT_TRUE(has(refusal("decode | decode_record(f, 4)"), "as the first stage"));
  EXPECT_TRUE(has(refusal("decode_record(f, 4) | decode_record(g, 4)"), "no other one"));
  EXPECT_EQ(
      check_forms("data.stages",
                  parse_stages("data.stages",
                               "take(9) | decode_record(f, 4) | cache | random_map(g) | pad"),
                  SampleForm::record),
      SampleForm::tensors);
  EXPECT_EQ(check_forms("data.stages", parse_stages("data.stages", "decode | cache(disk) | flip"),
                        SampleForm::record),
            SampleForm::image);
  EXPECT_EQ(check_forms("data.stages", parse_stages("data.stages", "decode | normalise | cache"),
                        SampleForm::record),
            SampleForm::tensors);
  EXPECT_EQ(check_forms("data.stages", parse_stages("data.stages", "map(f) | cache | filter(g)"),
                        SampleForm::tensors),
            SampleForm::tensors);
}

TEST(Stages, OfTheOrderStandWhereTheIndexIsEnough) {
  const auto of_tensors = [](const std::string& text) {
    return refusal(text, SampleForm::tensors);
  };
  EXPECT_TRUE(has(of_tensors("filter(f) | take(3)"), "take in front of filter"));
  EXPECT_TRUE(has(of_tensors("pack(8) | map(f)"), "map stands beside pack"));
  EXPECT_TRUE(has(of_tensors("bucket | pack(8)"), "packs have one length"));
  EXPECT_TRUE(has(of_tensors("repeat(2) | pack(8)"), "pack in front of repeat"));
  EXPECT_TRUE(has(of_tensors("pad | map(f)"), "map in front of pad"));
  EXPECT_TRUE(has(of_tensors("pad | mixup"), "one of pad and mixup"));
  EXPECT_TRUE(has(of_tensors("mixup | pad"), "pad in front of mixup"));
  EXPECT_TRUE(has(of_tensors("bucket | bucket"), "two stages bucket"));
  EXPECT_TRUE(has(of_tensors("take(1.5)"), "whole"));
  EXPECT_TRUE(has(of_tensors("shuffle"), "data.shuffle"));
  EXPECT_TRUE(has(of_tensors("zip"), "data.name=zip"));
  EXPECT_EQ(check_forms("data.stages",
                        parse_stages("data.stages", "take(9) | decode | repeat(2) | normalise"),
                        SampleForm::record),
            SampleForm::tensors);
}

TEST(Stages, OfTheOrderAreNotOfSamples) {
  const Stages stages = parse_stages("data.stages", "take(9) | map(f) | bucket | repeat(2) | pad");
  EXPECT_EQ(describe(of_samples(stages)), "map(f) | pad");
  EXPECT_EQ(describe(without_random(stages)), "map(f) | pad");
  EXPECT_EQ(describe(without_random(parse_stages("", "take(2) | pack(8) | repeat(2)"))),
            "pack(8)");
}

TEST(Stages, AnEvaluationHasNoRandomOnes) {
  const Stages stages = parse_stages(
      "data.stages",
      "decode | random_resized_crop(224) | flip | colour_jitter(0.4) | normalise | mixup");
  EXPECT_EQ(describe(without_random(stages)), "decode | center_of_resized(224) | normalise");
  EXPECT_EQ(describe(without_random(parse_stages("data.stages", "decode | random_crop(32, 4)"))),
            "decode | center_crop(32)");
}

}  // namespace
}  // namespace trireme::data
