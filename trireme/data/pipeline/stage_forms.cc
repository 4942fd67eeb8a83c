#include <trireme/data/pipeline/stage.h>

namespace trireme::data {
namespace {

constexpr auto kRecord = SampleForm::record;
constexpr auto kImage = SampleForm::image;
constexpr auto kTensors = SampleForm::tensors;

ParameterForm probability() {
  return {.name = "p", .meaning = "the probability", .standard = "0.5", .most = 1};
}

ParameterForm size() {
  return {.name = "size",
          .meaning = "height and width as 224:160, or one number for both",
          .most_numbers = 2,
          .least = 1,
          .most = 65'536};
}

std::vector<StageForm> make_forms() {
  return {
      {.name = "decode",
       .meaning = "Decodes a JPEG, PNG or WebP, or takes an image of bytes as it is.",
       .takes = kRecord,
       .gives = kImage,
       .parameters = {{.name = "channels",
                       .meaning = "3 for colours, 1 for grey",
                       .standard = "3",
                       .least = 1,
                       .most = 3}}},
      {.name = "resize",
       .meaning = "Scales the image, bilinear and antialiased. One number is the length of the "
                  "shorter side.",
       .takes = kImage,
       .gives = kImage,
       .parameters = {size()}},
      {.name = "center_crop",
       .meaning = "Cuts the middle out; what is missing is black.",
       .takes = kImage,
       .gives = kImage,
       .parameters = {size()}},
      {.name = "random_crop",
       .meaning = "Cuts a part out at a random place, after it has added a black frame.",
       .takes = kImage,
       .gives = kImage,
       .parameters = {size(),
                      {.name = "padding",
                       .meaning = "pixels of the frame on each side",
                       .standard = "0",
                       .most = 65'536}},
       .is_random = true,
       .instead = "center_crop"},
      {.name = "random_resized_crop",
       .meaning = "Cuts a part of random area and shape out, and scales it to `size`. An "
                  "evaluation scales the shorter side to size / 0.875 and cuts the middle out.",
       .takes = kImage,
       .gives = kImage,
       .parameters = {size(),
                      {.name = "scale",
                       .meaning = "the least and the largest part of the area",
                       .standard = "0.08:1",
                       .most_numbers = 2,
                       .most = 1},
                      {.name = "ratio",
                       .meaning = "the least and the largest width / height",
                       .standard = "0.75:1.3333333333333333",
                       .most_numbers = 2,
                       .least = 1e-3,
                       .most = 1e3}},
       .is_random = true,
       .instead = "center_of_resized"},
      {.name = "center_of_resized",
       .meaning = "Scales the shorter side to size / 0.875, and cuts the middle out.",
       .takes = kImage,
       .gives = kImage,
       .parameters = {size()}},
      {.name = "flip",
       .meaning = "Mirrors left and right.",
       .takes = kImage,
       .gives = kImage,
       .parameters = {probability()},
       .is_random = true},
      {.name = "flip_vertically",
       .meaning = "Mirrors top and bottom.",
       .takes = kImage,
       .gives = kImage,
       .parameters = {probability()},
       .is_random = true},
      {.name = "colour_jitter",
       .meaning = "Changes brightness, contrast, saturation and hue by random factors, in a "
                  "random order.",
       .takes = kImage,
       .gives = kImage,
       .parameters = {{.name = "brightness",
                       .meaning = "the factor lies in 1 - x .. 1 + x",
                       .standard = "0",
                       .most = 1},
                      {.name = "contrast", .meaning = "the same", .standard = "0", .most = 1},
                      {.name = "saturation", .meaning = "the same", .standard = "0", .most = 1},
                      {.name = "hue",
                       .meaning = "the hue turns by at most this part of a full turn",
                       .standard = "0",
                       .most = 0.5}},
       .is_random = true},
      {.name = "normalise",
       .meaning = "Makes floating-point numbers of an image: (pixel / 255 - mean) / std.",
       .takes = kImage,
       .gives = kTensors,
       .parameters = {{.name = "mean",
                       .meaning = "a number for each channel, or one; or imagenet, cifar10 for "
                                  "the usual ones",
                       .standard = "0",
                       .most_numbers = 3,
                       .least = -1e6,
                       .most = 1e6},
                      {.name = "std",
                       .meaning = "a number for each channel, or one",
                       .standard = "1",
                       .most_numbers = 3,
                       .least = 1e-6,
                       .most = 1e6}}},
      {.name = "erase",
       .meaning = "Sets a random rectangle to `value`.",
       .takes = kTensors,
       .gives = kTensors,
       .parameters = {probability(),
                      {.name = "scale",
                       .meaning = "the least and the largest part of the area",
                       .standard = "0.02:0.33",
                       .most_numbers = 2,
                       .most = 1},
                      {.name = "ratio",
                       .meaning = "the least and the largest height / width",
                       .standard = "0.3:3.3",
                       .most_numbers = 2,
                       .least = 1e-3,
                       .most = 1e3},
                      {.name = "value",
                       .meaning = "what replaces the numbers",
                       .standard = "0",
                       .least = -1e6,
                       .most = 1e6}},
       .is_random = true},
      {.name = "map",
       .meaning = "Calls the function that a programme has registered under this name.",
       .takes = kTensors,
       .gives = kTensors,
       .parameters = {{.name = "function", .meaning = "its name", .is_word = true}}},
      {.name = "random_map",
       .meaning = "The same for a function that draws random numbers.",
       .takes = kTensors,
       .gives = kTensors,
       .parameters = {{.name = "function", .meaning = "its name", .is_word = true}},
       .is_random = true},
      {.name = "filter",
       .meaning = "Leaves out the samples for which a registered function returns false.",
       .takes = kTensors,
       .gives = kTensors,
       .parameters = {{.name = "function", .meaning = "its name", .is_word = true}}},
      {.name = "cache",
       .meaning = "Keeps what the stages before it have made, for later epochs.",
       .takes = kImage,
       .gives = kImage,
       .parameters = {{.name = "place",
                       .meaning = "memory or disk",
                       .standard = "memory",
                       .is_word = true}}},
      {.name = "mixup",
       .meaning = "Mixes each sample with another one of its batch.",
       .takes = kTensors,
       .gives = kTensors,
       .parameters = {{.name = "alpha",
                       .meaning = "the parameter of the beta distribution",
                       .standard = "1",
                       .least = 1e-3,
                       .most = 1e3}},
       .is_random = true,
       .is_of_batch = true},
      {.name = "cutmix",
       .meaning = "Replaces a rectangle of each image by that of another one of its batch.",
       .takes = kTensors,
       .gives = kTensors,
       .parameters = {{.name = "alpha",
                       .meaning = "the parameter of the beta distribution",
                       .standard = "1",
                       .least = 1e-3,
                       .most = 1e3}},
       .is_random = true,
       .is_of_batch = true},
  };
}

}  // namespace

const std::vector<StageForm>& stage_forms() {
  static const std::vector<StageForm> forms = make_forms();
  return forms;
}

std::string_view to_string(SampleForm form) {
  switch (form) {
    case SampleForm::record: return "a record";
    case SampleForm::image: return "an image";
    case SampleForm::tensors: return "tensors";
  }
  return "";
}

}  // namespace trireme::data
