// The engine of strategies that give each rank a part of the model or of its state: a mesh of
// replicas x stages x ranks that divide layers.
#pragma once
#include <trireme/parallel/engine.h>
#include <memory>

namespace trireme {

std::unique_ptr<Engine> make_mesh_engine(const EngineSetting& setting);  // COLLECTIVE.
EngineNeeds needs_of_mesh(const plan::DivisionOptions& division, int ranks);

}  // namespace trireme
