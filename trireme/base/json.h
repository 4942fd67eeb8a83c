// JSON values (nlohmann-json), keys in the order they were written.
#pragma once
#include <nlohmann/json.hpp>

namespace trireme {
using Json = nlohmann::ordered_json;
}
