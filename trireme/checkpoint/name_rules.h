// Rules that give tensors other names, or leave them out: the weights of one programme for the
// model of another. Pure.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::checkpoint {

// Regular expressions of ECMAScript (std::regex), found anywhere in a name unless they have ^ and
// $.
struct NameRules {
  // (what, replacement), applied in order to each name. $1 is the first group.
  std::vector<std::pair<std::string, std::string>> rename = {};
  std::vector<std::string> drop = {};  // Applied before `rename`.
};

// The new name of each of `names`; empty: it is left out. Throws Error(invalid_argument) that
// names the rule if an expression cannot be read or no name fits it, and that names both tensors
// if two come to one name.
std::vector<std::optional<std::string>> renamed(const NameRules& rules,
                                                const std::vector<std::string>& names);

// Whether one of the expressions is found in the name. Throws as above for one that cannot be
// read.
bool matches_any(const std::vector<std::string>& expressions, const std::string& name);

// Reads "REGEX=REPLACEMENT" of `option`. Throws Error(invalid_argument) without a "=".
std::pair<std::string, std::string> read_rename(const std::string& option,
                                                const std::string& text);

}  // namespace trireme::checkpoint
