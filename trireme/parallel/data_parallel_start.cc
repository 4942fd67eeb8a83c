#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/hash.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/data_parallel_impl.h>
#include <trireme/parallel/model_device.h>
#include <trireme/parallel/optimizer_groups.h>
#include <trireme/parallel/options_json.h>
#include <trireme/tensor/overlap.h>
#include <algorithm>
#include <exception>

namespace trireme {
namespace {

// An overflow shows in the norm, so loss scaling needs the norm.
ExchangeOptions exchange_options(const DataParallelOptions& options) {
  return {options.clip_norm,
          options.gradient_norm || options.loss_scaling.has_value(),
          options.compression,
          options.accept,
          options.guard,
          options.offload,
          {},
          options.weight};
}

// Whether a parameter is tied by its storage to another one (by set_data), or to a buffer that is
// a view of it. The shared copy would separate them.
bool are_tied_by_storage(const std::vector<NamedTensor>& parameters,
                         const std::vector<NamedTensor>& buffers) {
  std::vector<at::Tensor> tensors = tensors_of(parameters);
  for (const auto& [name, tensor] : buffers) tensors.push_back(tensor);
  const std::vector<bool> overlap = overlapping(tensors);
  return std::count(overlap.begin(), overlap.begin() + std::ssize(parameters), true) > 0;
}

// Whether the exchange of shared memory can add up the gradients of all parameters, also of those
// that the optimizer does not have.
bool have_types_of_kernels(const std::vector<NamedTensor>& parameters) {
  return std::ranges::all_of(parameters, [](const NamedTensor& named) {
    const at::ScalarType type = named.tensor.scalar_type();
    return !named.tensor.requires_grad() || type == at::kFloat || type == at::kDouble;
  });
}

}  // namespace

Planner DataParallel::Impl::agree_on_plan(const DataParallelOptions& options) {
  Planner planner;
  std::exception_ptr error;
  Json facts;
  try {
    device = device_of(parameters);
    check(options.compression);
    check(options.local);
    if (options.loss_scaling) scaler.emplace(*options.loss_scaling);
    own_update = fused::FusedOptimizer::of(*optimizer, parameters);
    check_offload(options.offload, own_update.get());
    if (options.offload.parameters && are_tied_by_storage(parameters, state.buffers))
      throw Error(
          ErrorCode::invalid_argument, "parallel",
          "memory.offload is parameters, but parameters have memory in common with others, "
          "or with buffers",
          "memory.offload=optimizer");
    planner = planner_of(plan_facts(options));
    plan = planner({});
    facts = facts_to_agree(options);
  } catch (const std::exception& refused) {
    error = std::current_exception();
    facts = {{"error", parts_of(refused).what}};
  }
  agree(*group, facts);
  if (error) std::rethrow_exception(error);
  return planner;
}

void DataParallel::Impl::offload_own(const OffloadOptions& offload) {
  const bool is_alone = group->size() == 1;
  run_on_all(*group, [&] {
    offloaded = std::make_unique<OffloadedModel>(
        OffloadedTensors{.updated = parameters,
                         .wholes = parameters,
                         .gradients = is_alone ? parameters : std::vector<NamedTensor>()},
        own_update.get(), offload, /*watches_backward=*/true);
  });
}

plan::DataParallelFacts DataParallel::Impl::plan_facts(const DataParallelOptions& options) const {
  plan::DataParallelFacts facts;
  facts.placement = group->placement();
  facts.parameters = specs_of(parameters);
  if (own_update)
    for (size_t p = 0; p < parameters.size(); ++p)
      facts.state_tensors.push_back(own_update->state_tensors(static_cast<int>(p)));
  const bool can_finish = own_update && !(options.guard.wanted && own_update->layerwise()) &&
                          have_types_of_kernels(parameters) &&
                          !are_tied_by_storage(parameters, state.buffers);
  facts.share_parameters = options.share_parameters && group->host_team() && can_finish;
  facts.leaves_means =
      options.weight && group->host_team() && device.is_cpu() && have_types_of_kernels(parameters);
  facts.buckets = options.buckets;
  facts.compression = options.compression;
  facts.local = options.local;
  facts.virtual_shards = options.virtual_shards;
  return facts;
}

Planner DataParallel::Impl::planner_of(plan::DataParallelFacts facts) {
  return [facts = std::move(facts)](std::span<const int> ready_order) {
    plan::DataParallelFacts now = facts;
    now.ready_order.assign(ready_order.begin(), ready_order.end());
    plan::EnginePlan made = plan::plan_data_parallel(now);
    check(made);
    return made;
  };
}

void DataParallel::Impl::make_exchange(const DataParallelOptions& options,
                                       const Planner& planner) {
  ExchangeOptions how = exchange_options(options);
  if (options.offload.parameters)
    how.gradient_used = [this](const at::Tensor& gradient) {
      if (offloaded && offloaded->gradients())
        offloaded->gradients()->used(gradient.const_data_ptr(), gradient.nbytes());
    };
  switch (plan.exchange) {
    case plan::ExchangeKind::shared: {
      auto made = make_shared_exchange(group, parameters, std::move(own_update), plan, how);
      shared = made.get();
      exchange = std::move(made);
      break;
    }
    case plan::ExchangeKind::host_means:
      exchange = make_host_means(group, parameters, plan, options.weight);
      break;
    case plan::ExchangeKind::reproducible: {
      auto made = std::make_unique<ReproducibleExchange>(group, parameters, plan, how);
      shards = made.get();
      exchange = std::move(made);
      break;
    }
    case plan::ExchangeKind::local_steps: {
      auto made = make_local_sgd_exchange(
          group, parameters, optimizer,
          make_all_reduce_exchange(group, parameters, plan, planner, how), how, options.local);
      apart = made.get();
      exchange = std::move(made);
      break;
    }
    case plan::ExchangeKind::all_reduce:
    case plan::ExchangeKind::servers:
    case plan::ExchangeKind::own:  // plan_data_parallel() never chooses them.
      exchange = make_all_reduce_exchange(group, parameters, plan, planner, how);
  }
}

Json DataParallel::Impl::facts_to_agree(const DataParallelOptions& options) const {
  Json facts = {{"model device", type_of(device)},
                {"model", trireme::facts_of(state)},
                {"options", to_json(options)},
                {"optimizer", trireme::facts_of(*optimizer)}};
  if (options.state_follows) {
    facts["model"] = trireme::facts_of(state, /*with_frozen=*/false);
    for (Json& param_group : facts["optimizer"]["groups"])
      param_group = {{"parameters", param_group["parameters"]}};
  }
  // A norm that is only reported needs no other rank, unless ranks update shards of one copy.
  facts["options"].erase("gradient_norm");
  if (plan.exchange == plan::ExchangeKind::shared)
    facts["shared update"]["gradient_norm"] = options.gradient_norm;
  facts["optimizer"]["parameters by group"] = hash_of_groups();
  for (auto& [name, part] : plan.parts()) facts["plan"][name] = std::move(part);
  if (options.virtual_shards > 0) facts["threads of a replica"] = at::get_num_threads();
  return facts;
}

uint64_t DataParallel::Impl::hash_of_groups() const {
  uint64_t hash = 0, number_of_group = 0;
  for (const auto& param_group : optimizer->param_groups()) {
    ++number_of_group;
    for (size_t place = 0; place < param_group.params().size(); ++place) {
      const at::Tensor& tensor = param_group.params()[place];
      const auto found = numbers.find(tensor.unsafeGetTensorImpl());
      // Its gradients would be those of this rank alone.
      if (found == numbers.end() && group->size() > 1)
        throw foreign_parameter(group->rank(), number_of_group - 1, place, tensor);
      hash += mix64(number_of_group, found == numbers.end() ? 0 : found->second);
    }
  }
  return hash;
}

}  // namespace trireme
