// The types of the columns of Parquet and Arrow files, as far as records have fields for them.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <trireme/records/arrow/c_data.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::records {

struct ArrowType {
  enum class Kind {
    number,
    boolean,     // A bit for each.
    text,        // Also bytes; offsets of 32 bits.
    large_text,  // Offsets of 64 bits.
    text_view,   // Places in several buffers.
    fixed_text,  // `size` bytes each.
    list,        // Offsets of 32 bits.
    large_list,
    fixed_list,  // `size` members each.
    file,        // A struct {bytes, path}, as Hugging Face's datasets have images and sounds.
    dictionary   // The numbers of values, which stand in a dictionary.
  };
  Kind kind = Kind::number;
  plan::DType dtype = plan::DType::uint8;  // Of the numbers, also of a list's and a dictionary's.
  int64_t size = 0;
  size_t bytes_member = 0;             // file: the member that has the bytes.
  std::unique_ptr<ArrowType> inner{};  // Of a list's members, of a file's bytes, of a dictionary.
  plan::DType key = plan::DType::int32;  // dictionary: the type of the numbers of values.
  // Instead of [size] for a fixed list that is a tensor.
  std::vector<int64_t> tensor_shape{};

  bool is_text() const;        // Its field is encoded.
  int64_t dimensions() const;  // Of its field.
};

// Throws Damage(unsupported) saying what the type is, if no field can have it.
ArrowType type_of_arrow(const ArrowSchema& schema);
// The form of the field.
FieldSpec spec_of_arrow(const std::string& name, const ArrowType& type);
// The type of a column in a few words: "list of float32", "a struct of 3 members".
std::string describe_arrow_type(const ArrowSchema& schema);

}  // namespace trireme::records
