// A sample on its way through the stages of a pipeline.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/data/batch.h>
#include <trireme/data/source.h>
#include <trireme/images/image.h>
#include <trireme/images/rows.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <vector>

namespace trireme::data {

// The samples that a thread looked for in a cache.
struct CacheLookups {
  int64_t hits = 0, misses = 0;
};

// The fields of its record that a sample uses, which Program::find_fields() finds. Null: none.
struct UsedFields {
  const records::Field *image = nullptr, *tokens = nullptr, *target = nullptr;
  std::vector<const records::Field*> inputs;
  // The places of these fields in the last record, which are mostly those of the next one.
  std::vector<size_t> places;
};

// One thread uses it for one sample after the other, so that its memory is reused.
struct Sample {
  Draw draw{0};
  records::Record record;
  UsedFields used;
  // An image is `planes`, as long as no stage needs other pixels, or else `image`. `spare` is for
  // what a stage makes.
  images::Planes planes;
  images::Image image, spare;
  bool flip_horizontally = false, flip_vertically = false;  // The row is written mirrored.
  Example example;                                          // Once it is tensors.
  CacheLookups lookups;  // Those that SampleCache::count() does not know yet.

  int64_t height() const { return planes.pixels ? planes.height : image.height; }
  int64_t width() const { return planes.pixels ? planes.width : image.width; }
  int64_t channels() const { return planes.pixels ? planes.channels : image.channels; }
  int64_t bytes_of_image() const { return height() * width() * channels(); }
  int64_t bytes_of_record() const {
    size_t bytes = 0;
    for (const records::Field& field : record.fields) bytes += field.bytes.size();
    return static_cast<int64_t>(bytes);
  }
};

}  // namespace trireme::data
