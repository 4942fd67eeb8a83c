// The engine of the strategies one_device, mirrored and multi_worker: DataParallel behind the
// interface of engines.
#pragma once
#include <trireme/parallel/engine.h>
#include <memory>

namespace trireme {

// COLLECTIVE over setting.group.
std::unique_ptr<Engine> make_data_parallel_engine(const EngineSetting& setting);

}  // namespace trireme
