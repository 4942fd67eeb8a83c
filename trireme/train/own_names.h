// The names of metrics and losses that programmes register, for the rules of a configuration.
// metric.h has what is behind them. No torch.
#pragma once
#include <string>
#include <vector>

namespace trireme {

inline const std::string kDefaultLoss = "cross_entropy";

// Any thread. Those of losses begin with the ones that ship.
std::vector<std::string> metric_names();
std::vector<std::string> loss_names();
// The names in "rmse, top5"; "none" gives no name.
std::vector<std::string> split_names(const std::string& text);
void add_metric_name(const std::string& name);
void add_loss_name(const std::string& name);

}  // namespace trireme
