// Parameter servers as tasks of a job: how workers find them. Trainer::serve() is what they do.
#pragma once
#include <trireme/comm/world.h>
#include <trireme/membership/roles.h>
#include <trireme/parallel/servers/server_access.h>
#include <memory>

namespace trireme {

// For the engine of a worker, in its present generation.
std::shared_ptr<const ServerAccess> access_to_servers(World& world, const plan::PsOptions& ps);

}  // namespace trireme
