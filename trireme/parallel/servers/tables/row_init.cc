#include <trireme/parallel/servers/tables/row_init.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme {
namespace servers {
namespace {

// 0 < x <= 1, from the upper 53 bits.
double unit_of(uint64_t bits) { return (static_cast<double>(bits >> 11) + 1) * 0x1p-53; }

// Two numbers at once (Box, Muller 1958).
void normal_row(uint64_t key, double scale, float* values, int64_t width) {
  for (int64_t i = 0; i < width; i += 2) {
    const double radius =
        scale * std::sqrt(-2 * std::log(unit_of(mix64(key + static_cast<uint64_t>(i)))));
    const double angle = 2 * std::numbers::pi * unit_of(mix64(key + static_cast<uint64_t>(i) + 1));
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < width) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

}  // namespace

uint64_t key_of_table(std::string_view name) {
  uint64_t key = name.size();
  for (const char letter : name) key = mix64(key, static_cast<unsigned char>(letter));
  return key;
}

void initial_row(const RowInit& init, uint64_t table, int64_t row, float* values, int64_t width) {
  const uint64_t key = mix64(init.seed, table, row);
  switch (init.start) {
    case RowStart::zeros: std::fill_n(values, width, 0.0F); return;
    case RowStart::normal: normal_row(key, init.scale, values, width); return;
    case RowStart::uniform:
      for (int64_t i = 0; i < width; ++i)
        values[i] = static_cast<float>(init.scale *
                                       (2 * unit_of(mix64(key + static_cast<uint64_t>(i))) - 1));
      return;
  }
}

}  // namespace servers

void check(const RowInit& init) {
  if (!(init.scale >= 0) || !std::isfinite(init.scale))
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("rows of a table begin with a scale of {}", init.scale), "0 or more");
}

}  // namespace trireme
