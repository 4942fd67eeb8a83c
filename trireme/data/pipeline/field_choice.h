// Which fields of a record become the tensors of a sample. No torch.
#pragma once
#include <trireme/data/pipeline/stage.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::data {

struct FieldWishes {
  std::string inputs;  // Names with commas between them; empty: chosen by the rules below.
  std::string target;  // Empty: chosen by the rules below.
  // Batches are padded: an input of another length in each record may stand alone.
  bool is_padded = false;
  // The shape that the stage decode_record states, if there is one: decoded_shape().
  std::optional<std::vector<int64_t>> decoded = {};
};

struct FieldChoice {
  // The field of an image: an encoded file, or bytes [channels, height, width]. Empty if the
  // inputs are numbers.
  std::string image;
  std::vector<std::string> inputs;  // Numbers, one after the other in the tensor "data".
  // The field holds one token more than a sample has: the target is one place further on.
  std::string tokens;
  std::string target;  // Empty: the data is its own target.
  // The function of the stage decode_record makes all tensors of a sample. It needs these fields;
  // none: it finds its own.
  std::optional<std::vector<std::string>> decoded;
  // The shape of "data" if no stage changes it, as far as it is known.
  std::optional<std::vector<int64_t>> shape;
};

// The rules: a field `tokens` is input and target. Otherwise the target is the field that `wishes`
// names, or label, target, cls, class or y, or else the last one, if all fields are single
// numbers. The inputs are the fields that `wishes` names, or an image, or else all other fields of
// numbers with a known shape. With the stage decode_record there is no target, and all fields of
// the records may be inputs. Throws Error(invalid_argument) that lists the fields if a name is
// unknown, or if nothing is left.
FieldChoice choose_fields(const std::vector<records::FieldSpec>& fields,
                          const FieldWishes& wishes);

// The shape that the stage decode_record of `stages` states; nothing if there is no such stage.
std::optional<std::vector<int64_t>> decoded_shape(const Stages& stages);

// The names of the fields in a text with commas between them. Throws Error(invalid_argument) if
// one is there twice.
std::vector<std::string> names_of_inputs(const std::string& text);
// All fields that a choice needs.
std::vector<std::string> names_of_choice(const FieldChoice& choice);

// Whether choose_fields() takes a field for its name.
std::vector<std::string> usual_targets();
bool is_usual_target(std::string_view name);
bool is_usual_image(std::string_view name);

// Whether the target of a sample has a length of its own, which the stage pad changes too: that of
// tokens, of data that is its own target, and of a field whose records differ in shape; but none
// of decode_record.
bool target_has_length(const std::vector<records::FieldSpec>& fields, const FieldChoice& choice);

// The form in which stages get the samples: an image of bytes needs no decoder in front of its
// other stages.
SampleForm first_form(const FieldChoice& fields, const Stages& stages);

}  // namespace trireme::data
