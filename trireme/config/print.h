// Options as text, JSON and documents.
#pragma once
#include <trireme/config/value.h>
#include <string>
#include <utility>
#include <vector>

namespace trireme::config {

// All keys with their values, in order.
std::vector<std::pair<std::string, std::string>> flatten(const Table& table, const void* options);
Json to_json(const Table& table, const void* options);
// The keys that differ from their defaults, in the form that --set takes. Reading these alone
// gives the same options.
std::vector<std::string> to_settings(const Table& table, const void* options);
// The values that must be equal on all ranks, under their keys.
std::vector<std::pair<std::string, std::string>> agreed_values(const Table& table,
                                                               const void* options);
// A Markdown table of all keys with type, default and meaning.
std::string describe(const Table& table);

}  // namespace trireme::config
