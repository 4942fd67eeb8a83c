#include <trireme/train/own_names.h>

#include <trireme/config/names.h>
#include <sstream>

namespace trireme {
namespace {

config::Names& known_metric_names() {
  static config::Names names{{}};
  return names;
}
config::Names& known_loss_names() {
  static config::Names names{{kDefaultLoss, "mse"}};
  return names;
}

}  // namespace

std::vector<std::string> metric_names() { return known_metric_names().all(); }
std::vector<std::string> loss_names() { return known_loss_names().all(); }

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream parts(text == "none" ? "" : text);
  for (std::string name; std::getline(parts, name, ',');) {
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

void add_metric_name(const std::string& name) { known_metric_names().add(name); }
void add_loss_name(const std::string& name) { known_loss_names().add(name); }

}  // namespace trireme
