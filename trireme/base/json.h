// JSON values (nlohmann-json) that keep their keys in the order in which they were written.
#pragma once
#include <nlohmann/json.hpp>

namespace trireme {
using Json = nlohmann::ordered_json;
}
