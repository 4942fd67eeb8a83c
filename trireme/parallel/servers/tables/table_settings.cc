#include <trireme/parallel/servers/tables/table_settings.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/config/row.h>
#include <trireme/parallel/servers/tables/row_table.h>

namespace trireme {
namespace {

const config::OnlyFor kWithTables{"ps.tables", {"true"}};

}  // namespace

config::Rows rows_of(const TableSettings*) {
  using O = TableSettings;
  return config::all_of<O>(
      {config::row(&O::on_servers,
                   {.name = "ps.tables",
                    .meaning = "The rows of the model's embedding tables live on the servers "
                               "alone, and those that a batch uses travel (model.name=dlrm).",
                    .only_for = {"strategy.name", {"parameter_server"}}}),
       config::row(
           &O::optimizer,
           {.name = "tables.optimizer",
            .meaning = "The optimizer of the rows; auto: that of the other parameters, "
                       "if it is sgd, adagrad or adam.",
            .choices = config::one_of({"auto", "sgd", "adagrad", "row_adagrad", "adam", "ftrl"}),
            .only_for = kWithTables}),
       config::row(&O::lr, {.name = "tables.lr",
                            .meaning = "The learning rate of the rows, which follows the "
                                       "schedule; 0: optimizer.lr.",
                            .range = config::at_least(0),
                            .only_for = kWithTables}),
       config::row(&O::l1, {.name = "tables.l1",
                            .meaning = "ftrl: the weight of the L1 norm, which makes values 0.",
                            .range = config::at_least(0),
                            .only_for = {"tables.optimizer", {"ftrl"}}}),
       config::row(&O::l2, {.name = "tables.l2",
                            .meaning = "ftrl: the weight of the L2 norm.",
                            .range = config::at_least(0),
                            .only_for = {"tables.optimizer", {"ftrl"}}}),
       config::row(&O::unbounded,
                   {.name = "tables.unbounded",
                    .meaning = "Each category has a row of its own, made on first use, instead "
                               "of one of model.rows.",
                    .only_for = kWithTables}),
       config::row(&O::admit_after,
                   {.name = "tables.admit_after",
                    .meaning = "A row gets memory when it is used for this time; before, it has "
                               "its initial values and learns nothing.",
                    .range = config::from_to(1, 255),
                    .only_for = kWithTables}),
       config::row(&O::evict_unused,
                   {.name = "tables.evict_unused",
                    .meaning = "A row that was not used in so many updates loses its memory, and "
                               "so what it has learnt; 0: never.",
                    .range = config::at_least(0),
                    .only_for = kWithTables}),
       config::row(&O::budget_bytes,
                   {.name = "tables.budget",
                    .meaning = "The most bytes of memory that a table may take on each server; "
                               "0: no limit.",
                    .range = config::at_least(0),
                    .only_for = kWithTables,
                    .kind = config::Kind::bytes}),
       config::row(&O::evicts_least_recent,
                   {.name = "tables.evict_least_recent",
                    .meaning = "A table at tables.budget gives up the rows that were used least "
                               "recently; otherwise the run ends with an error.",
                    .only_for = kWithTables})});
}

void check(const TableSettings& settings, const OptimizerOptions& optimizer) {
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, "config", what, remedy);
  };
  if (!settings.on_servers) return;
  if (settings.evicts_least_recent && settings.budget_bytes == 0)
    refuse("tables.evict_least_recent is true, and tables.budget is 0: a table has no limit",
           "tables.budget=4GiB, or tables.evict_least_recent=false");
  if (settings.optimizer != "auto") return;
  const std::string& name = optimizer.name;
  if (name != "sgd" && name != "adagrad" && name != "adam")
    refuse(fmt::format("tables.optimizer is auto, and optimizer.name is {}, which rows of tables "
                       "do not have",
                       name),
           "tables.optimizer=row_adagrad, or another one");
  if (name == "sgd" && optimizer.momentum != 0)
    refuse(fmt::format("tables.optimizer is auto, and optimizer.momentum is {}, which rows of "
                       "tables do not have",
                       optimizer.momentum),
           "tables.optimizer=sgd, or optimizer.momentum=0");
  if (optimizer.weight_decay != 0)
    refuse(fmt::format("tables.optimizer is auto, and optimizer.weight_decay is {}, which rows "
                       "of tables do not have",
                       optimizer.weight_decay),
           fmt::format("tables.optimizer={}, or optimizer.weight_decay=0", name));
}

TableOptions table_options_of(const TableSettings& settings, const OptimizerOptions& optimizer) {
  const std::string& name = settings.optimizer == "auto" ? optimizer.name : settings.optimizer;
  TableOptions options;
  RowOptimizer& own = options.optimizer;
  own.rule = row_rule_from_string(name);
  own.lr = settings.lr > 0 ? settings.lr : optimizer.lr;
  own.l1 = settings.l1;
  own.l2 = settings.l2;
  if (own.rule == RowRule::adam) own.eps = 1e-8;
  if (name == optimizer.name) {
    own.eps = optimizer.eps;
    own.beta1 = optimizer.beta1;
    own.beta2 = optimizer.beta2;
  }
  options.admit_after = settings.admit_after;
  options.evict_unused = settings.evict_unused;
  options.budget_bytes = settings.budget_bytes;
  options.evicts_least_recent = settings.evicts_least_recent;
  return options;
}

}  // namespace trireme
