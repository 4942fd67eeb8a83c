// The engine of strategy parameter_server: a worker of servers that have the model.
#pragma once
#include <trireme/parallel/engine.h>
#include <memory>

namespace trireme {

// COLLECTIVE. Connects to the servers that EngineSetting::servers finds.
std::unique_ptr<Engine> make_server_engine(const EngineSetting& setting);

}  // namespace trireme
