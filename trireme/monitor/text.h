// Numbers and names as the progress display prints them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::monitor {

// Four significant digits: "0.1234", "2.300", "1.000e-05", "nan".
std::string loss_text(double loss);
std::string grouped(int64_t number);                          // "1,234,567"
std::string rate_text(double per_second);                     // "12,345", "12.3", "0.45"
std::string countdown_text(double seconds);                   // "12 s", "2 min 05 s", "2 h 10 min"
std::string short_countdown(double seconds);                  // "0:12", "2:05", "2:10:05"
std::string counted(int64_t number, std::string_view thing);  // "1 worker", "2 workers"
// The text with control characters replaced by spaces, so that foreign text cannot move the
// cursor.
std::string printable(std::string text);

}  // namespace trireme::monitor
